"""Where answers arrive at the server: each is checked against the order and the sender's key, and kept or refused."""

import errno
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from fedshot.errors import UploadRefused
from fedshot.federation.messages import Answer, Packet, printable, unpack
from fedshot.federation.order import Order
from fedshot.server import Reception
from fedshot.setting import Setting
from fedshot.store import ClientSummary, RunFolder, write_atomic
from fedshot.upload import Upload

Kind = Literal["delivered", "skipped", "counts", "duplicate", "busy", "refused", "declined", "failed", "disk full"]

FINAL: frozenset[Kind] = frozenset({"delivered", "skipped", "counts", "duplicate", "refused", "declined"})


@dataclass(frozen=True)
class Outcome:
    """What came of an answer.

    `refused`: the server did not take it. `declined`: the client will not do it. `failed`: something broke there, and
    asked again it may go well. `disk full`: it could not be kept here; the client still has it.
    """

    kind: Kind
    reason: str | None = None
    samples: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    epoch: int | None = None
    counts: tuple[int, ...] | None = None

    def told(self) -> dict[str, str | int | float]:
        """What the ledger says of it."""
        kept = asdict(self)
        return {key: value for key, value in kept.items() if key not in ("kind", "counts") and value is not None}


class Desk:
    """Takes the answers to one order. Uploads are kept by the hash of their bytes; the first one of a client counts."""

    def __init__(self, setting: Setting, folder: RunFolder, order: Order) -> None:
        self._setting, self._folder, self._order = setting, folder, order
        self._job = order.sha256
        self._reception = Reception(setting, setting.fusion.needs)

    def take(self, client: int, packet: Packet) -> Outcome:
        """Checks an answer of the client with that key and keeps what came with it."""
        try:
            answer = unpack(packet)
            if answer.job != self._job:
                raise UploadRefused("it answers another job")
            if answer.client != client:
                raise UploadRefused(
                    f"it says that it is client {answer.client}, and its key is that of client {client}"
                )
            return self._sorted(client, answer, packet.upload)
        except UploadRefused as reason:
            return Outcome("refused", printable(str(reason)))
        except OSError as error:
            if not is_full(error):
                raise
            return Outcome("disk full", f"{error.strerror}: the answer is still at the client, which is asked again")

    def _sorted(self, client: int, answer: Answer, upload: bytes | None) -> Outcome:
        if answer.kind == "busy":
            return Outcome("busy", epoch=answer.epoch)
        if answer.kind in ("refused", "failed"):
            return Outcome("declined" if answer.kind == "refused" else "failed", answer.reason or "no reason given")
        if answer.kind == "counts":
            return self._counts(client, answer)
        if answer.kind == "skipped":
            return self._skip(client, answer)
        return self._keep(client, answer, upload)

    def _counts(self, client: int, answer: Answer) -> Outcome:
        counts, classes = answer.counts, self._setting.task.classes
        if self._order.kind != "announce":
            raise UploadRefused("it announces class counts, and an upload was asked for")
        if counts is None or len(counts) != classes:
            raise UploadRefused(f"{len(counts or ())} class counts for {classes} classes")
        self._compare(client, counts)
        return Outcome("counts", counts=counts, samples=sum(counts), bytes=8 * classes)

    def _skip(self, client: int, answer: Answer) -> Outcome:
        self._check_kind()
        if self._folder.finished(client):
            return Outcome("duplicate")
        told = answer.summary or ClientSummary(id=client, samples=0, skipped=answer.reason)
        summary = told.model_copy(update={"id": client, "skipped": told.skipped or "no reason given"})
        self._folder.finish_client(summary, self._rows(client, answer))
        return Outcome("skipped", summary.skipped, samples=summary.samples, seconds=summary.seconds)

    def _keep(self, client: int, answer: Answer, message: bytes | None) -> Outcome:
        self._check_kind()
        if not message:
            raise UploadRefused("no upload came with it")
        self._reception.check_size(len(message))
        sha256 = hashlib.sha256(message).hexdigest()
        mine, kept = self._folder.upload(client), kept_upload(self._folder, sha256)
        if self._folder.finished(client) and mine.exists():
            if mine.read_bytes() == message:
                return Outcome("duplicate")
            raise UploadRefused("it has sent another upload before, and the first one counts")
        known = kept.exists()
        write_atomic(kept, message)
        try:
            upload = self._opened(kept, client)
            summary = self._check(client, answer, upload)
        except UploadRefused:
            if not known:
                kept.unlink()
            raise
        rows = self._rows(client, answer)
        _link(kept, mine)
        self._folder.finish_client(summary, rows)  # the last: a client with a summary has delivered
        return Outcome("delivered", samples=summary.samples, bytes=len(message), seconds=summary.seconds)

    def _opened(self, kept: Path, client: int) -> Upload:
        try:
            return self._reception.admit(kept, client).upload
        except (UploadRefused, OSError):
            raise
        except Exception as error:  # whatever else a stranger's bytes can do to a parser or a model
            raise UploadRefused(f"it cannot be opened: {type(error).__name__}: {error}") from error

    def _check_kind(self) -> None:
        if self._order.kind != "train":
            raise UploadRefused("class counts were asked for, and nothing else yet")

    def _check(self, client: int, answer: Answer, upload: Upload) -> ClientSummary:
        """The client's summary of itself, as far as it agrees with its upload."""
        if strange := sorted(upload.sections - set(self._order.sections)):
            raise UploadRefused(f"section {', '.join(strange)} was not asked for")
        if upload.header.method != self._setting.method.name:
            raise UploadRefused(f"it is not an upload of {self._setting.method.name}")
        if upload.header.precision != self._setting.spec.upload_precision:
            raise UploadRefused(f"its weights are {upload.header.precision}, not {self._setting.spec.upload_precision}")
        if answer.summary is None:
            raise UploadRefused("it comes without a summary")
        if answer.summary.samples != upload.header.samples:
            raise UploadRefused(f"its summary tells of {answer.summary.samples} samples, its upload of another number")
        if upload.header.counts == "exact":
            self._compare(client, upload.header.class_counts)
        return answer.summary.model_copy(update={"id": client, "skipped": None})

    def _compare(self, client: int, counts: tuple[int, ...]) -> None:
        """In a rehearsal of a split, refuses a client that holds something else than its part."""
        if self._setting.own:
            return
        expected = self._setting.class_counts(client)
        if sum(counts) != sum(expected):
            raise UploadRefused(f"it trains on {sum(counts)} samples, and the partition gives it {sum(expected)}")
        if list(counts) != expected:
            raise UploadRefused("its class counts are not those of its part of the partition")

    def _rows(self, client: int, answer: Answer) -> list[dict[str, float | int | None]]:
        """Telemetry, one row an epoch; rows of epochs that cannot be are left out."""
        epochs = range(1, self._setting.spec.epochs + 1)
        rows = {row["epoch"]: {**row, "client": client} for row in answer.telemetry if row.get("epoch") in epochs}
        return list(rows.values())


def is_full(error: OSError) -> bool:
    """Whether a disk, or what somebody may use of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def kept_upload(folder: RunFolder, sha256: str) -> Path:
    """Where an upload of that hash is kept."""
    return folder.path / "uploads" / f"{sha256}.safetensors"


def _link(kept: Path, file: Path) -> None:
    """The same bytes under a second name, without a second copy where the disk can do that."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    try:
        part.hardlink_to(kept)
    except OSError:
        write_atomic(file, kept.read_bytes())
        return
    part.replace(file)


def write_announced(folder: RunFolder, counts: dict[int, tuple[int, ...]]) -> None:
    """Keeps what clients announced: a server that starts again does not ask them again."""
    write_atomic(folder.path / "announced.json", json.dumps({str(k): list(v) for k, v in counts.items()}).encode())


def read_announced(folder: RunFolder) -> dict[int, tuple[int, ...]]:
    """What clients have announced so far."""
    try:
        found = json.loads((folder.path / "announced.json").read_bytes())
        return {int(client): tuple(counts) for client, counts in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
