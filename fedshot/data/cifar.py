"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009) as published: pickled batches in a folder or in a .tar.gz."""

import io
import pickle
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedshot.data.checks import bad_file, labelled
from fedshot.data.source import Parts

EXPECTED = "a CIFAR batch"


@dataclass(frozen=True)
class Batches:
    """The names inside a published CIFAR archive."""

    archive: str
    folder: str
    train: tuple[str, ...]
    test: str
    labels: str  # the key of the labels in a batch
    classes: int

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(f"{self.folder}/{name}" for name in (*self.train, self.test))


CIFAR10 = Batches(
    archive="cifar-10-python.tar.gz",
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test="test_batch",
    labels="labels",
    classes=10,
)
CIFAR100 = Batches("cifar-100-python.tar.gz", "cifar-100-python", ("train",), "test", "fine_labels", 100)


def read_folder(place: Path, batches: Batches) -> Parts:
    """The batches unpacked below `place`."""
    try:
        content = {file: (place / file).read_bytes() for file in batches.files}
    except OSError as error:
        raise bad_file(place / batches.folder, "a folder of CIFAR batches", error) from error
    return _parts(content, batches, place)


def read_archive(place: Path, batches: Batches) -> Parts:
    """The batches inside the published .tar.gz, read in one pass and not unpacked to the disk."""
    path = place / batches.archive
    content = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.name in batches.files else None
                if stream is not None:
                    content[member.name] = stream.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise bad_file(path, "the published CIFAR archive", error) from error
    lacking = [file for file in batches.files if file not in content]
    if lacking:
        raise bad_file(path, "the published CIFAR archive", f"it lacks {', '.join(lacking)}")
    return _parts(content, batches, path)


def _parts(content: dict[str, bytes], batches: Batches, where: Path) -> Parts:
    decoded = [_batch(content[file], batches.labels, where / file) for file in batches.files]
    train_images = np.concatenate([images for images, _ in decoded[:-1]])
    train_labels = np.concatenate([labels for _, labels in decoded[:-1]])
    train = labelled(train_images, train_labels, batches.classes, where / batches.files[0])
    return Parts(train, labelled(*decoded[-1], batches.classes, where / batches.files[-1]))


def _batch(content: bytes, label_key: str, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 3, 32, 32) and labels (N,) of one batch."""
    try:
        table = BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
        named = {key.decode() if isinstance(key, bytes) else key: value for key, value in table.items()}
        images = named["data"].array()
        labels = np.array(named[label_key])
    except Exception as error:  # a damaged pickle can fail in any way
        raise bad_file(path, EXPECTED, f"{type(error).__name__}: {error}") from error
    if images.ndim != 2 or images.shape[1] != 3072:
        raise bad_file(path, EXPECTED, f"images of shape {images.shape}, not (N, 3072)")
    return images.reshape(-1, 3, 32, 32), labels


class PickledArray:
    """Stands in for a numpy array while unpickling, so that a file never reaches numpy's own constructors."""

    def __init__(self, *_: object) -> None:
        self.state: tuple = ()

    def __setstate__(self, state: tuple) -> None:
        self.state = state

    def array(self) -> np.ndarray:
        """The array, if it is one of bytes in C order."""
        _, shape, kind, fortran, content = self.state
        if not isinstance(kind, PickledKind) or kind.code not in ("u1", b"u1") or fortran:
            raise ValueError("the images are not unsigned bytes in C order")
        return np.frombuffer(content, np.uint8).reshape(shape)


class PickledKind:
    """Stands in for a numpy dtype."""

    def __init__(self, code: object = None, *_: object) -> None:
        self.code = code

    def __setstate__(self, _: object) -> None:
        """Byte order and field names do not matter for single bytes."""


class BatchUnpickler(pickle.Unpickler):
    """Reads the three names that occur in the published batches and refuses every other: no code is run."""

    STAND_INS = {  # noqa: RUF012 - never written
        ("numpy.core.multiarray", "_reconstruct"): PickledArray,
        ("numpy", "ndarray"): PickledArray,
        ("numpy", "dtype"): PickledKind,
    }

    def find_class(self, module: str, name: str) -> type:
        if (module, name) not in self.STAND_INS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no published batch does")
        return self.STAND_INS[module, name]
