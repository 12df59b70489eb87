"""What is known of a published data set before its files are read, and what a reader hands over."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torch import Tensor

from fedshot.data.dataset import Labelled


@dataclass(frozen=True)
class Parts:
    """What a reader found in the files."""

    train: Labelled
    test: Labelled
    class_names: tuple[str, ...] = ()  # empty: the files do not name their classes
    groups: Tensor | None = None  # (N_train,) int64


@dataclass(frozen=True)
class Layout:
    """One way in which the files of a data set can lie in a folder."""

    files: tuple[str, ...]  # all must exist, relative to that folder
    read: Callable[[Path], Parts]


@dataclass(frozen=True)
class Download:
    """A file as its authors publish it."""

    file: str
    urls: tuple[str, ...]  # the official home or a long-standing mirror, tried in order
    size: int | None  # bytes
    md5: str | None


@dataclass(frozen=True)
class Source:
    """A published data set: its constants, where its files may lie, where they come from."""

    name: str
    title: str
    class_names: tuple[str, ...]
    shape: tuple[int, int, int]  # channels, height, width
    counts: tuple[int, int]  # training and test images of the published set
    augmentation: Literal["natural", "characters"]
    folder: str  # below the data root: downloads go there
    places: tuple[str, ...]  # folders below the data root in which the layouts are looked for, in order
    layouts: tuple[Layout, ...]
    downloads: tuple[Download, ...]
    mean: tuple[float, ...] = ()  # empty: computed from the training images
    std: tuple[float, ...] = ()
    unpacked_md5: Mapping[str, str] = field(default_factory=dict)  # of files inside the published archives
    arrays_sha256: str | None = None  # of x_train, y_train, x_test, y_test of a NAME.npz, one after the other
    note: str = ""

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def packed(self) -> str:
        """The name of the file that holds the whole set as four arrays."""
        return self.name.replace(":", "-") + ".npz"

    def md5(self, file: str) -> str | None:
        """The published checksum of a file of a layout."""
        return {**self.unpacked_md5, **{item.file: item.md5 for item in self.downloads}}.get(file)
