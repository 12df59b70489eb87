"""Images that everybody may see: a share of the training data that no client gets, or another data set."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from fedshot.data.dataset import Dataset
from fedshot.errors import UserError
from fedshot.partition import hold_out
from fedshot.partition.pools import Indices
from fedshot.seeds import stream_seed
from fedshot.task import Public


@dataclass(frozen=True, eq=False)
class PublicPart:
    """Public images, and where they come from."""

    images: Public | None
    taken: Indices  # of the training images that no client gets
    source: Dataset | None  # another data set, if they are one


NONE_SET_ASIDE = (
    "and the run has set none aside: name another data set for them, fedshot fuse --public NAME, or run again with "
    "--public 0.1"
)
NO_PUBLIC = PublicPart(None, np.empty(0, dtype=np.int64), None)


def open_public(asked: str, data_name: str, load: Callable[[str], Dataset], seed: int) -> PublicPart:
    """The public images, on the device of the data.

    Args:
        asked: a share of the training data such as "0.1", drawn by the seed class by class; or a data set by name, all
            of its training images.
        data_name: the data set of the clients.
        load: a data set by name.
    """
    data, share = load(data_name), share_of(asked)
    if share is not None:
        labels = data.train.labels.cpu().numpy()
        _, taken = hold_out(np.arange(len(labels)), share, stream_seed(seed, "public"), 0, labels)
        if len(taken) < 2:
            raise UserError(f"public {asked} is {len(taken)} of {len(labels)} images: give a larger share")
        drawn = data.train[torch.from_numpy(taken).to(data.train.labels.device)]
        return PublicPart(Public(drawn, data.classes, True), taken, None)
    if _whole(asked) == _whole(data_name):
        raise UserError(
            f"public {asked}: the clients' own data set would be public, and perhaps test images with it: give a share "
            "such as --public 0.1, whose images are taken from the clients"
        )
    other = load(asked)
    if other.shape != data.shape:
        raise UserError(
            f"the public images of {asked} have the shape {_in_words(other.shape)}, those of {data.name} "
            f"{_in_words(data.shape)}: give a data set of the same shape, or a share such as --public 0.1"
        )
    same = other.class_names == data.class_names
    return PublicPart(Public(other.train, other.classes, same), NO_PUBLIC.taken, other)


def _whole(name: str) -> str:
    """The collection that a name draws from: a folder, or a data set with all its variants and parts."""
    return name if name.startswith("folder") else name.partition(":")[0]


def share_of(asked: str) -> float | None:
    """The share that is meant; None for the name of a data set."""
    try:
        share = float(asked)
    except ValueError:
        return None
    if not 0 < share < 1:
        raise UserError(f"public {asked}: a share of the training data lies between 0 and 1, e.g. --public 0.1")
    return share


def _in_words(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
