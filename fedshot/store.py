"""A run on disk: uploads and telemetry of each client as it finishes, and the record at the end. Writes are atomic."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open

from fedshot import __version__
from fedshot.errors import UserError
from fedshot.grown import Grown
from fedshot.privacy.accountant import Spent
from fedshot.spec import Spec, first_problem

if TYPE_CHECKING:  # a client that waits for its training reads these files, and has no need of torch
    import torch
    from torch import Tensor

    from fedshot.departure import Departure
    from fedshot.local.telemetry import Row
    from fedshot.upload import Upload


class ClientSummary(Grown):
    """How a client ended. Its file is written last: a client that has one is finished."""

    model_config = ConfigDict(frozen=True)
    later: ClassVar[tuple[str, ...]] = ("spent",)

    id: int
    samples: int
    validation_samples: int = 0
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    not_captured: str | None = None  # why its steps ran one kernel at a time on a GPU
    skipped: str | None = None  # why there is no upload
    spent: Spent | None = None  # what training under noise has cost its images


class RunFolder:
    """The files of one run.

    spec.json, record.json, telemetry.jsonl, job.safetensors (where the server sends something with the job),
    pretrained.safetensors (where clients start from an encoder that was trained before), and for each client
    clients/K/: upload.safetensors (all sections), at_EPOCH.safetensors (snapshots, until they are scored),
    checkpoint.safetensors (while a long client is under way), telemetry.jsonl, client.json.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def record(self) -> Path:
        return self.path / "record.json"

    @property
    def job(self) -> Path:
        """What the server sends with the job beside the initial model, where the method has something."""
        return self.path / "job.safetensors"

    @property
    def pretrained(self) -> Path:
        """A copy of the weights that clients start from, where they were trained before: the original may go."""
        return self.path / "pretrained.safetensors"

    @property
    def telemetry(self) -> Path:
        return self.path / "telemetry.jsonl"

    def client(self, number: int) -> Path:
        return self.path / "clients" / str(number)

    def upload(self, number: int, epoch: int | None = None) -> Path:
        """The final upload of a client, or its snapshot after an epoch."""
        return self.client(number) / ("upload.safetensors" if epoch is None else f"at_{epoch}.safetensors")

    def checkpoint(self, number: int) -> Path:
        """Where a client under way was last."""
        return self.client(number) / "checkpoint.safetensors"

    @property
    def spec(self) -> Path:
        return self.path / "spec.json"

    def check(self, spec: Spec) -> None:
        """Refuses a folder that holds something other than a run of this spec."""
        if self.spec.exists():
            if differing := differing_fields(read_spec(self.spec), spec):
                raise UserError(
                    f"{self.path} holds a run of another spec ({', '.join(differing)} differ): "
                    "choose another --out, or remove that folder"
                )
        elif self.path.is_dir() and any(not _half_written(file) for file in self.path.iterdir()):
            raise UserError(f"{self.path} holds something that is not a run: choose another --out")
        nearest = next(folder for folder in (self.path, *self.path.absolute().parents) if folder.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK):
            why = "cannot be written to" if nearest.is_dir() else "is a file"
            raise UserError(f"there can be no run in {self.path}: {nearest} {why}: choose another --out")

    def begin(self, spec: Spec, resume: bool, pretrained: bytes | None = None) -> None:
        """Makes the folder. Without `resume`, what an earlier run of the spec left is dropped.

        Args:
            pretrained: the file of weights that clients start from, if they do.
        """
        if not resume:
            for file in [self.record, self.telemetry, self.job, *self.path.glob("clients/*/*")]:
                file.unlink(missing_ok=True)
        for unfinished in self.path.rglob(".*.part"):  # of a process that was killed while it wrote
            unfinished.unlink(missing_ok=True)  # or still writes: then the file has its name by now
        if pretrained is not None:
            write_atomic(self.pretrained, pretrained)
        write_atomic(self.spec, spec.model_dump_json(indent=1).encode())

    def finished(self, number: int) -> ClientSummary | None:
        """How a client ended; None for one that has not, or whose file is damaged: it trains again."""
        try:
            return ClientSummary.model_validate_json((self.client(number) / "client.json").read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def check_version(self) -> None:
        """Refuses a run of another version of fedshot, ended or not: its figures may mean something else."""
        made_by = self._made_by()
        if made_by not in (None, __version__):
            raise UserError(
                f"{self.path} holds a run of fedshot {made_by}, this is {__version__}: remove that folder, or train it "
                "anew with run or compare --fresh"
            )

    def _made_by(self) -> str | None:
        """The version of fedshot that wrote the record, or trained the clients that have finished; None if none did."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            return str(json.loads(self.record.read_bytes())["versions"]["fedshot"])
        uploads = (self.upload(int(folder.name)) for folder in self.path.glob("clients/*") if folder.name.isdigit())
        return next((version for file in uploads if (version := outline_of(file)[0].get("fedshot"))), None)

    def complete(self, number: int, spec: Spec) -> bool:
        """Whether a client has ended and everything that the server needs of it is there."""
        summary = self.finished(number)
        if summary is None or summary.skipped:
            return summary is not None
        points = [None if epoch == spec.epochs else epoch for epoch in spec.evaluate_at]
        return all(self.upload(number, point).exists() for point in points)

    def write_job(self, content: "Mapping[str, Tensor]", seconds: float) -> None:
        from safetensors.torch import save as to_safetensors

        tensors = {name: t.detach().cpu().contiguous() for name, t in content.items()}
        write_atomic(self.job, to_safetensors(tensors, {"seconds": f"{seconds:012.6f}"}))  # always as many bytes

    def job_seconds(self) -> float:
        """How long the server took to make what it sent with the job; 0 where nothing was sent."""
        if not self.job.exists():
            return 0.0
        with safe_open(self.job, "np") as file:
            return float((file.metadata() or {}).get("seconds", 0.0))

    def read_job(self, device: "torch.device") -> "dict[str, Tensor]":
        """Tensors of the reader's own; none where nothing was sent."""
        if not self.job.exists():
            return {}
        from safetensors.torch import load as parse_safetensors

        return {name: t.to(device) for name, t in parse_safetensors(self.job.read_bytes()).items()}

    def write_upload(self, upload: "Upload | Departure", epoch: int | None = None) -> None:
        write_atomic(self.upload(upload.header.client, epoch), upload.to_bytes())

    def finish_client(self, summary: ClientSummary, rows: "list[Row]") -> None:
        folder = self.client(summary.id)
        write_atomic(folder / "telemetry.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in rows))
        write_atomic(folder / "client.json", summary.model_dump_json().encode())

    def gather_telemetry(self, clients: int) -> None:
        """One file of all clients' rows, in the order of clients."""
        files = [self.client(k) / "telemetry.jsonl" for k in range(clients)]
        write_atomic(self.telemetry, b"".join(file.read_bytes() for file in files if file.exists()))

    def drop_snapshots(self) -> None:
        for file in self.path.glob("clients/*/at_*.safetensors"):
            file.unlink()


def outline_of(upload: Path) -> tuple[dict[str, Any], frozenset[str]]:
    """What the file of an upload says of itself, unchecked, and its sections; nothing where it is no whole upload."""
    try:
        with safe_open(upload, "np") as file:
            sections = frozenset(name.partition("/")[0] for name in file.keys())  # noqa: SIM118 it is no mapping
            header = json.loads((file.metadata() or {}).get("fedshot", "{}"))
            return header if isinstance(header, dict) else {}, sections
    except (OSError, SafetensorError, ValueError):
        return {}, frozenset()


def read_spec(path: Path) -> Spec:
    """The spec in a file."""
    try:
        return Spec.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise UserError(f"{path} is not the spec of a run: {first_problem(error)}") from None


def differing_fields(one: Spec, other: Spec) -> list[str]:
    """Names of the fields in which two specs differ."""
    return [name for name in Spec.model_fields if getattr(one, name) != getattr(other, name)]


def _half_written(file: Path) -> bool:
    """Whether a file is what a killed process left of a write."""
    return file.name.startswith(".") and file.name.endswith(".part")


def write_atomic(path: Path, content: bytes) -> None:
    """All of the content under its name, or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)  # half a file on a full disk helps nobody
        error.filename, error.filename2 = str(path), None  # what was meant to be written
        raise
