"""Which data sets are at hand, and whether their files are the published ones."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedshot.data import digits, synthetic
from fedshot.data.catalogue import SOURCES, source_of
from fedshot.data.download import file_md5
from fedshot.data.locate import data_root, locate, missing
from fedshot.data.packed import arrays_sha256
from fedshot.data.source import Source
from fedshot.errors import UserError


@dataclass(frozen=True)
class Entry:
    """One line of the list of data sets."""

    name: str
    title: str
    state: Literal["embedded", "present", "missing", "your own", "made"]
    where: str  # the folder of the files; for a missing data set, the folder that a download fills
    files: tuple[str, ...]  # relative to `where`: those found, or those that a download brings
    classes: int | None
    size: str  # numbers of training and test images and their shape
    note: str


@dataclass(frozen=True)
class Checked:
    """One file compared with its published checksum."""

    file: str
    state: Literal["ok", "differs", "no official checksum"]
    found: str  # the checksum of the file, empty if there is nothing to compare it with
    expected: str


def inventory(root: Path | None = None) -> list[Entry]:
    """The embedded and all published data sets, and how to name a folder of pictures or images made to measure."""
    embedded = Entry(
        name="digits",
        title=digits.TITLE,
        state="embedded",
        where="fedshot",
        files=(digits.FILE.name,),
        classes=len(digits.CLASS_NAMES),
        size=_size(digits.COUNTS, digits.SHAPE),
        note="no download needed",
    )
    own = Entry(
        name="folder:PATH",
        title="Any folder of pictures",
        state="your own",
        where="PATH",
        files=("train/CLASS/*", "test/CLASS/*"),
        classes=None,
        size="as found",
        note="or one tree of class folders, of which a fifth is held out for testing",
    )
    made = Entry(
        name=synthetic.NAME,
        title=synthetic.TITLE,
        state="made",
        where="",
        files=(),
        classes=synthetic.CLASSES,
        size=_size(synthetic.COUNTS, synthetic.SHAPE),
        note="or as asked: synthetic:images=5000,size=32,classes=10,channels=3",
    )
    return [embedded, *(_entry(source, data_root(root)) for source in SOURCES.values()), own, made]


def verify(name: str, root: Path | None = None) -> list[Checked]:
    """The files that `load` would read, each compared with its published checksum."""
    if name == "digits":
        return [_compared(digits.FILE.name, digits.embedded_sha256(), digits.SHA256)]
    if (kind := name.partition(":")[0]) in ("folder", synthetic.NAME):
        reason = "is a folder of your own pictures" if kind == "folder" else "is made, not read"
        raise UserError(f"{name} {reason}: there is no checksum to compare it with")
    source = source_of(name)
    found = locate(source, data_root(root))
    if found is None:
        raise missing(source, data_root(root))
    if found.packed:
        path = found.place / found.files[0]
        return [_compared(str(path), arrays_sha256(path) if source.arrays_sha256 else "", source.arrays_sha256)]
    checked = []
    for file in found.files:
        path, expected = found.place / file, source.md5(file)
        checked.append(_compared(str(path), file_md5(path) if expected else "", expected))
    return checked


def _compared(file: str, found: str, expected: str | None) -> Checked:
    if expected is None:
        return Checked(file, "no official checksum", "", "")
    return Checked(file, "ok" if found == expected else "differs", found, expected)


def _entry(source: Source, root: Path) -> Entry:
    found = locate(source, root)
    return Entry(
        name=source.name,
        title=source.title,
        state="present" if found else "missing",
        where=str(found.place if found else root / source.folder),
        files=found.files if found else tuple(item.file for item in source.downloads),
        classes=source.classes,
        size=_size(source.counts, source.shape),
        note=source.note if found else _download_note(source),
    )


def _download_note(source: Source) -> str:
    """How much a download is, and which of its files cannot be checked."""
    megabytes = sum(item.size or 0 for item in source.downloads) / 1e6
    unchecked = [item.file for item in source.downloads if item.md5 is None]
    notes = [f"download of {megabytes:,.0f} MB", source.note]
    notes += [f"no official checksum: {', '.join(unchecked)}"] if unchecked else []
    return "; ".join(note for note in notes if note)


def _size(counts: tuple[int, int], shape: tuple[int, int, int]) -> str:
    channels, height, width = shape
    return f"{counts[0]:,} + {counts[1]:,} of {channels}x{height}x{width}"
