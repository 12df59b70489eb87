"""IDX files, the format of MNIST (LeCun et al., 1998), Fashion-MNIST and EMNIST; plain or .gz, or in EMNIST's zip."""

import gzip
import math
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fedshot.data.checks import bad_file, labelled
from fedshot.data.source import Parts

EXPECTED = "an IDX file"
MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
EMNIST_ARCHIVE = "gzip.zip"


def emnist_files(split: str) -> tuple[str, ...]:
    """The files of one split of EMNIST, in the order of MNIST_FILES."""
    return tuple(
        f"emnist-{split}-{part}-{kind}"
        for part in ("train", "test")
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )


def read_mnist(place: Path, suffix: str) -> Parts:
    """MNIST or Fashion-MNIST; suffix is "" or ".gz"."""
    return _parts([read_idx(place / f"{file}{suffix}") for file in MNIST_FILES], 10, place)


def read_emnist(place: Path, split: str, suffix: str, classes: int) -> Parts:
    """One split of EMNIST from four files."""
    return _upright([read_idx(place / f"{file}{suffix}") for file in emnist_files(split)], split, classes, place)


def read_emnist_archive(place: Path, split: str, classes: int) -> Parts:
    """One split of EMNIST straight from the published zip of .gz files."""
    path = place / EMNIST_ARCHIVE
    arrays = []
    try:
        with zipfile.ZipFile(path) as archive:
            for file in emnist_files(split):
                with archive.open(f"gzip/{file}.gz") as packed, gzip.open(packed) as stream:
                    arrays.append(decode(stream, path / f"gzip/{file}.gz"))
    except KeyError as error:
        raise bad_file(path, "the published EMNIST archive", f"it lacks gzip/{file}.gz") from error
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise bad_file(path, "the published EMNIST archive", error) from error
    return _upright(arrays, split, classes, path)


def read_idx(path: Path) -> np.ndarray:
    """The array in an IDX file of unsigned bytes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            return decode(stream, path)
    except (OSError, EOFError, zlib.error) as error:
        raise bad_file(path, EXPECTED, error) from error


def decode(stream: BinaryIO | gzip.GzipFile, path: Path) -> np.ndarray:
    """Magic number 00 00 08 D, then D sizes of 4 bytes, most significant first, then the values.

    >>> import io
    >>> decode(io.BytesIO(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9])), Path("labels")).tolist()
    [7, 8, 9]
    """
    magic = stream.read(4)
    if len(magic) < 4 or magic[:3] != b"\0\0\x08" or magic[3] not in (1, 3):
        raise bad_file(path, EXPECTED, f"it starts with {magic.hex(' ') or 'nothing'}, not 00 00 08 01 or 00 00 08 03")
    sizes = stream.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise bad_file(path, EXPECTED, "it ends inside its header")
    shape = tuple(int(size) for size in np.frombuffer(sizes, ">u4"))
    content = stream.read()
    if len(content) != math.prod(shape):
        raise bad_file(path, EXPECTED, f"its header promises {math.prod(shape)} values, it holds {len(content)}")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _parts(arrays: list[np.ndarray], classes: int, where: Path) -> Parts:
    images, labels, test_images, test_labels = arrays
    for array in (images, test_images):
        if array.ndim != 3:
            raise bad_file(where, "a folder of IDX images and labels", f"images of shape {array.shape}")
    return Parts(
        labelled(images[:, None], labels, classes, where), labelled(test_images[:, None], test_labels, classes, where)
    )


def _upright(arrays: list[np.ndarray], split: str, classes: int, where: Path) -> Parts:
    """EMNIST stores its images with rows and columns exchanged, and the labels of `letters` from 1."""
    images, labels, test_images, test_labels = arrays
    first = 1 if split == "letters" else 0
    turned = [image.swapaxes(-1, -2) for image in (images, test_images)]
    shifted = [label.astype(np.int64) - first for label in (labels, test_labels)]
    return _parts([turned[0], shifted[0], turned[1], shifted[1]], classes, where)
