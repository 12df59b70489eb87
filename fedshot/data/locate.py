"""Where the files of a data set lie below the data root."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedshot.data.packed import read_packed
from fedshot.data.source import Parts, Source
from fedshot.errors import UserError

ENVIRONMENT = "FEDSHOT_DATA"


@dataclass(frozen=True)
class Located:
    """The files of a data set, found and not yet read."""

    place: Path  # the folder that the names of the files are relative to
    files: tuple[str, ...]
    packed: bool  # one NAME.npz instead of the published files
    read: Callable[[], Parts]


def data_root(root: Path | None = None) -> Path:
    """The folder with the data sets: what is given, else $FEDSHOT_DATA, else ./data."""
    return root if root is not None else Path(os.environ.get(ENVIRONMENT) or "data")


def locate(source: Source, root: Path) -> Located | None:
    """NAME.npz first, then the published files in each place, nearest to the root first."""
    path = root / source.packed
    if path.is_file():
        return Located(root, (source.packed,), packed=True, read=partial(read_packed, path, source.classes))
    for place in source.places:
        for layout in source.layouts:
            if all((root / place / file).exists() for file in layout.files):
                return Located(root / place, layout.files, packed=False, read=partial(layout.read, root / place))
    return None


def missing(source: Source, root: Path) -> UserError:
    """The error for a data set whose files are not there: which are looked for, where they go, what to type."""
    choices = " or ".join(" + ".join(layout.files) for layout in source.layouts)
    places = " or ".join(str(root / place) for place in source.places)
    return UserError(
        f"the files of {source.name} are missing: type `fedshot data download {source.name}`, "
        f"or put {root / source.packed} there, or into {places}: {choices}"
    )
