"""What came out of an experiment: one JSON file with everything that the numbers depend on."""

import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedshot import __version__
from fedshot.evaluate import Metrics
from fedshot.privacy.record import RunPrivacy
from fedshot.screen.verdict import Screening
from fedshot.spec import Spec, first_problem
from fedshot.student import Student


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class ClientRecord(Frozen):
    """One client: what it held, what it sent, what it cost, and how good it is without the others."""

    id: int
    samples: int
    validation_samples: int
    upload_bytes: int
    upload_sha256: str | None
    seconds: float
    accuracy_alone: float | None = None
    per_class_alone: tuple[float | None, ...] | None = None
    personalised_accuracy: float | None = None  # of the model that it ends up with, on classes as it holds them
    not_captured: str | None = None  # why its steps ran one kernel at a time on a GPU
    skipped: str | None = None  # why nothing of this client was fused


class Point(Frozen):
    """An evaluation point: the snapshots of all clients after that epoch, fused and scored."""

    epoch: int
    accuracy: float
    balanced_accuracy: float
    nll: float


class Final(Metrics):
    """The last evaluation point, in full."""

    epoch: int
    fusion: str
    inductive: bool
    phases: int
    oracle_routing: float
    personalised_accuracy: float | None = None  # mean over clients


class HeldOut(Frozen):
    """The last evaluation point on images that clients hold back: what a choice may be made by."""

    images: int  # of every client that holds images back the same share
    accuracy: float
    balanced_accuracy: float
    nll: float
    seal: str = ""  # hash of these figures and the spec: records of before have the same `result_sha256` without them

    def sealed(self, spec: Spec) -> "HeldOut":
        """With the seal of this run."""
        return self.model_copy(update={"seal": self.seal_of(spec)})

    def seal_of(self, spec: Spec) -> str:
        """The seal that these figures have in a run of that spec."""
        told = spec.sha256 + self.model_dump_json(exclude={"seal"})
        return hashlib.sha256(told.encode()).hexdigest()


class Cost(Frozen):
    """What the run cost. Seconds and memory are measured; they differ from run to run."""

    client_seconds: float  # of all clients together
    slowest_client_seconds: float
    server_seconds: float
    upload_bytes: int  # of all clients together
    announced_bytes: int = 0  # of all clients together, in a first message before the job; 0 in one phase
    job_seconds: float = 0.0  # of the server, to make what it sends with the job
    job_bytes: int = 0  # that the server sends to each client with the job, beside the initial model
    peak_memory_bytes: int
    models_kept: int  # how many models answer at inference


class Record(Frozen):
    """One run, from what was asked to what came out."""

    spec: Spec
    partition: dict[str, Any]
    clients: tuple[ClientRecord, ...]
    curve: tuple[Point, ...]
    final: Final
    held_out: HeldOut | None = None  # where clients hold images back; not part of the hash
    student: Student | None = None  # where one model was taught by an ensemble; not part of the hash
    privacy: RunPrivacy | None = None  # where something was withheld or noised; not part of the hash
    screening: Screening | None = None  # where uploads were screened; not part of the hash
    cost: Cost
    versions: dict[str, str]
    device: str
    commit: str | None
    findings: tuple[str, ...] = ()  # the severe ones of a post-mortem, in words
    result_sha256: str = Field("", description="hash of the results: what the clock and our words for them are not in")

    def sealed(self) -> "Record":
        """The record with the hash of its results."""
        return self.model_copy(update={"result_sha256": result_digest(self.model_dump(mode="json"))})


def result_digest(record: Mapping[str, Any]) -> str:
    """The hash of the results in a record's JSON.

    Findings are derived: a better diagnosis must not change the identity of a result. They count as none.
    """
    kept = {key: record.get(key) for key in ("spec", "partition", "curve", "final")}
    clients = [{**client, "seconds": None, "not_captured": None} for client in record["clients"]]
    told = {**kept, "clients": clients, "findings": []}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def bytes_per_client(upload_bytes: int, announced_bytes: int, job_bytes: int, clients: int) -> float:
    """What travels to and from one client beside the initial model, from the bytes in `Cost`.

    >>> bytes_per_client(upload_bytes=3000, announced_bytes=30, job_bytes=500, clients=3)
    1510.0
    """
    return (upload_bytes + announced_bytes) / clients + job_bytes


def versions() -> dict[str, str]:
    """Of everything that computes."""
    import numpy
    import torch

    return {
        "fedshot": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
    }


def commit() -> str | None:
    """The commit of fedshot's own source, where it runs from a checkout; with a + if the checkout was changed."""
    here = str(Path(__file__).parent)

    def git(*words: str) -> str:
        command = ["git", "-C", here, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)  # not the commit of a project that fedshot is installed in
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", here) else "")
    except (OSError, subprocess.SubprocessError):
        return None


class RecordDamaged(ValueError):
    """What is no record, or one that does not say what was measured."""


def parse_record(content: bytes | str) -> Record:
    """The record in the content of a file. One whose results do not fit their hash was changed, and is refused."""
    try:
        record = Record.model_validate_json(content)
    except ValidationError as error:
        raise RecordDamaged(first_problem(error)) from None
    if result_digest(json.loads(content)) != record.result_sha256:
        raise RecordDamaged("its results do not fit their hash, so it was changed")
    if record.held_out and record.held_out.seal != record.held_out.seal_of(record.spec):
        raise RecordDamaged("its held-out figures do not fit their seal, so it was changed")
    return record


def read_record(path: Path) -> Record | None:
    """The record in a file; None if there is none, or a damaged one: the server then works again."""
    try:
        return parse_record(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, RecordDamaged):
        return None
