"""Station 1 of the flow: data sets by name, as tensors in memory.

`load("cifar10")` looks below the data root (the argument, else $FEDSHOT_DATA, else ./data) for cifar10.npz, then for
the files as their authors publish them. `digits` is part of the package. `folder:PATH` is a folder of pictures.
`synthetic` is made on the spot. Any name may carry `:images=N`, a part of the data set for quick trials.
"""

from collections.abc import Callable
from pathlib import Path

from fedshot.data.catalogue import SOURCES, source_of
from fedshot.data.checks import statistics
from fedshot.data.dataset import Dataset, Labelled
from fedshot.data.digits import load_digits
from fedshot.data.folder import load_folder
from fedshot.data.locate import data_root, locate, missing
from fedshot.data.subset import draw_subset, parse_subset
from fedshot.data.synthetic import load_synthetic
from fedshot.errors import UserError, unknown

__all__ = ["DATASETS", "SOURCES", "Dataset", "Labelled", "data_root", "load", "usual_augmentation"]

Loader = Callable[[str, Path, int], Dataset]  # full name, data root, seed


def _embedded(name: str, root: Path, seed: int) -> Dataset:
    if name != "digits":
        raise UserError(
            f"unknown data set {name!r}: digits has no variants, write 'digits', or digits:images=500 for a part"
        )
    return load_digits()


def _published(name: str, root: Path, seed: int) -> Dataset:
    source = source_of(name)
    found = locate(source, root)
    if found is None:
        raise missing(source, root)
    parts = found.read()
    for part in (parts.train, parts.test):
        if tuple(part.images.shape[1:]) != source.shape:
            raise UserError(
                f"{found.place / found.files[0]} is not {source.title}: its images are "
                f"{tuple(part.images.shape[1:])}, those of {source.name} are {source.shape} (channels, height, width)"
            )
    mean, std = (source.mean, source.std) if source.mean else statistics(parts.train.images)
    class_names = parts.class_names or source.class_names
    return Dataset(source.name, parts.train, parts.test, class_names, mean, std, source.augmentation, parts.groups)


def usual_augmentation(name: str) -> str:
    """The recipe of views that a data set has where none is asked for, without reading it.

    >>> usual_augmentation("mnist:images=500"), usual_augmentation("folder:photos")
    ('characters', 'natural')
    """
    kind = name.partition(":")[0]
    return SOURCES[kind].augmentation if kind in SOURCES else "characters" if kind == "digits" else "natural"


def _pictures(name: str, root: Path, seed: int) -> Dataset:
    path = name.partition(":")[2]
    return load_folder(Path(path).expanduser() if path else root, name, seed)


def _made(name: str, root: Path, seed: int) -> Dataset:
    return load_synthetic(name)


DATASETS: dict[str, Loader] = {
    "digits": _embedded,
    "mnist": _published,
    "fashion_mnist": _published,
    "cifar10": _published,
    "cifar100": _published,
    "svhn": _published,
    "tiny_imagenet": _published,
    "emnist": _published,
    "folder": _pictures,
    "synthetic": _made,
}


def load(name: str, root: Path | None = None, seed: int = 1) -> Dataset:
    """The data set of that name on the CPU: images uint8 (N, channels, H, W), labels int64 (N,).

    Args:
        name: a key of DATASETS; `emnist:SPLIT` for a split of EMNIST; `folder:PATH` for a folder of pictures, relative
            to the current directory, or `folder` for the data root itself; `synthetic:images=5000,size=32` for images
            made to measure. Any other name may end in `:images=N`: N training and N/5 test images of it.
        root: the folder with the data sets; None means $FEDSHOT_DATA, else ./data.
        seed: draws the test part of a folder that has none; no other data set uses it.

    >>> digits = load("digits")
    >>> len(digits.train), len(digits.test), digits.shape
    (1437, 360, (1, 8, 8))
    """
    base = name.partition(":")[0]
    if base not in DATASETS:
        raise unknown("data set", base, DATASETS)
    # of synthetic images as many are made as asked; of every other data set they are drawn
    whole, images = (name, None) if base == "synthetic" else parse_subset(name)
    data = DATASETS[base](whole, data_root(root), seed)
    return data if images is None else draw_subset(data, images)
