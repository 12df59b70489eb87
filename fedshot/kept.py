"""Records where they are kept: in the folders of runs, or in a collection.

A collection is one file, a record on each line: small enough for a repository, whole enough to make every table again.
A line holds all of a run's record.json. Uploads and telemetry do not travel. Lines say nearly the same, and
NAME.jsonl.gz takes a seventh of the room.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedshot import __version__
from fedshot.errors import UserError

if TYPE_CHECKING:
    from fedshot.record import Record

_PACKED, _PACKED_BEGINS = ".jsonl.gz", b"\x1f\x8b"
_SUFFIXES = (".jsonl", _PACKED)

Sources = Iterator[tuple[Path, Callable[[], "Record"]]]  # where a record lies, and how to read it


@dataclass(frozen=True)
class Kept:
    """What adding to a collection did."""

    new: int
    replaced: int
    before: int  # lines that stay as they were

    def in_words(self) -> str:
        """In one line.

        >>> Kept(3, 0, 99).in_words()
        '3 new, 0 replaced, 99 as before'
        """
        return f"{self.new} new, {self.replaced} replaced, {self.before} as before"


def records_at(path: Path) -> Sources:
    """The records of all finished runs below a folder, of one file, or of a collection."""
    if not path.exists():
        raise UserError(
            f"{path} does not exist: give the folder of a run, of a comparison or of a study, or kept records"
        )
    if path.is_file() and _is_collection(path):
        yield from collected(path)
        return
    for file in [path] if path.is_file() else sorted(path.rglob("record.json")):
        yield file.parent, partial(read_record, file)


def a_collection_in(path: Path) -> Path | None:
    """A collection of records that lies in a folder, where somebody may have meant those."""
    return min(filter(_is_collection, path.glob("*.jsonl*")), default=None) if path.is_dir() else None


def _is_collection(path: Path) -> bool:
    return path.name.endswith(_SUFFIXES)


def read_record(file: Path) -> "Record":
    """The record in a file; refuses a damaged one and one of another version, with its reason."""
    from fedshot.record import RecordDamaged, parse_record

    try:
        content = file.read_bytes()
        made_by = json.loads(content)["versions"]["fedshot"]
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{file} is damaged or not the record of a run: run it again") from None
    if made_by != __version__:
        raise UserError(f"{file} was made by fedshot {made_by}, this is {__version__}: run it again")
    try:
        return parse_record(content)
    except RecordDamaged as error:
        raise UserError(f"{file} is damaged: {error}") from None


def collected(path: Path) -> Sources:
    """Each record of a collection; its place is FILE:LINE."""
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if content.startswith(_PACKED_BEGINS) else content).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as a collection of records: {error}") from None
    lines = text.removesuffix("\n").split("\n") if text else []  # a string may hold other line ends
    for number, line in enumerate(lines, start=1):
        place = Path(f"{path}:{number}")
        yield place, partial(_parse, place, line)


def read_collection(path: Path) -> dict[Path, "Record"]:
    """All records of a collection by their places; refuses it whole if a line is damaged or repeats a run."""
    found = {place: read() for place, read in collected(path)}
    first: dict[str, Path] = {}
    for place, record in found.items():
        if (other := first.setdefault(record.spec.sha256, place)) != place:
            raise UserError(f"{place} repeats the spec of {other}: remove one of the lines")
    return found


def keep(path: Path, records: Iterable["Record"]) -> Kept:
    """Adds records to a collection, which need not exist: a run of the same spec is replaced, the rest stays as it is.

    Args:
        records: as they were read from their files.
    """
    from fedshot.store import write_atomic

    if not _is_collection(path):
        raise UserError(f"{path}: a collection of records is a file NAME{' or NAME'.join(_SUFFIXES)}")
    old = {record.spec.sha256: record for record in read_collection(path).values()} if path.exists() else {}
    every = {**old, **{record.spec.sha256: record for record in records}}
    lines = [_line(record) for record in sorted(every.values(), key=_order)]
    known = {_line(record) for record in old.values()}
    if set(lines) != known or not path.exists():  # the same lines may be packed otherwise by another Python
        content = "".join(f"{line}\n" for line in lines).encode()
        write_atomic(path, gzip.compress(content, mtime=0) if path.name.endswith(_PACKED) else content)
    new, before = len(every) - len(old), len(set(lines) & known)
    return Kept(new, len(every) - new - before, before)


def _line(record: "Record") -> str:
    """Only what the file of the record had: a field that the model got later would change the hash of the results."""
    from fedshot.record import result_digest

    line = record.model_dump_json(exclude_unset=True)
    if result_digest(json.loads(line)) != record.result_sha256:
        told = f"{record.spec.method}, seed {record.spec.seed}"
        raise UserError(f"the record of {told} does not fit the hash of its results, so it was changed: run it again")
    return line


def _parse(place: Path, line: str) -> "Record":
    from fedshot.record import RecordDamaged, parse_record

    try:
        return parse_record(line)
    except RecordDamaged as error:
        raise UserError(f"{place} is damaged: {error}") from None


def _order(record: "Record") -> tuple[Any, ...]:
    """Data, α, clients, method with its options, rule, seed; the hash tells apart what differs in anything else."""
    from fedshot.changed import variant

    spec = record.spec
    options = json.dumps(spec.options, sort_keys=True)
    label = variant(spec.method, spec.options)
    others = spec.model_copy(update={"seed": 0}).sha256
    return spec.data, spec.alpha, spec.clients, label, options, record.final.fusion, others, spec.seed
