"""A part of a data set for quick trials: `cifar10:images=5000` is 5,000 training and 1,000 test images of CIFAR-10.

The number stays in the name, hence in every spec and table: no result on a part is taken for one on the whole.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fedshot.data.dataset import Dataset, Labelled
from fedshot.errors import UserError
from fedshot.seeds import stream

_KEY = "images="


def parse_subset(name: str) -> tuple[str, int | None]:
    """The name of the whole data set, and how many training images are asked of it; None for all.

    >>> parse_subset("emnist:letters:images=1000"), parse_subset("emnist:letters")
    (('emnist:letters', 1000), ('emnist:letters', None))
    """
    whole, _, last = name.rpartition(":")
    if not whole or not last.startswith(_KEY):
        return name, None
    number = last.removeprefix(_KEY)
    if not number.isdecimal():
        raise UserError(f"data set {name!r}: images takes a whole number, not {number!r}: write {whole}:images=1000")
    return whole, int(number)


def draw_subset(data: Dataset, images: int) -> Dataset:
    """That many training images and a fifth as many test images, at most all of them, with the classes' shares kept.

    The choice depends on the data set alone, never on the seed of a run. Normalisation stays that of the whole.
    """
    if not data.classes <= images <= len(data.train):
        raise UserError(
            f"data set {data.name}:images={images}: give a number from {data.classes}, one for each class, "
            f"to {len(data.train)}, all training images"
        )
    chosen = _choose(data.train, images, data.classes, "train")
    tested = _choose(data.test, min(max(1, images // 5), len(data.test)), data.classes, "test")
    return replace(
        data,
        name=f"{data.name}:images={images}",
        train=data.train[chosen],
        test=data.test[tested],
        groups=None if data.groups is None else data.groups[chosen],
    )


def _choose(part: Labelled, count: int, classes: int, name: str) -> Tensor:
    """Indices in ascending order. Each class draws from its own stream, so a larger choice keeps what a smaller has."""
    shares = _apportion(torch.bincount(part.labels, minlength=classes), count)
    kept = []
    for label, share in enumerate(shares.tolist()):
        held = (part.labels == label).nonzero().flatten()
        kept.append(held[torch.randperm(len(held), generator=stream(0, "subset", name, label))[:share]])
    return torch.cat(kept).sort().values


def _apportion(counts: Tensor, total: int) -> Tensor:
    """`total` divided in proportion to the counts, by largest remainders: each share is within one of the exact one.

    >>> _apportion(torch.tensor([6, 3, 1]), 5)
    tensor([3, 2, 0])
    """
    shares = counts * total // counts.sum()
    remainders = counts * total % counts.sum()
    first = remainders.argsort(descending=True, stable=True)[: total - int(shares.sum())]
    shares[first] += 1
    return shares
