"""Images that everybody may see: a share of the training data that no client gets, or another data set."""

from pathlib import Path

import numpy as np
import torch

from fedshot.data import load
from fedshot.data.dataset import Dataset
from fedshot.errors import UserError
from fedshot.partition import hold_out
from fedshot.partition.pools import Indices
from fedshot.seeds import stream_seed
from fedshot.task import Public


def open_public(asked: str | None, data: Dataset, seed: int, root: Path | None) -> tuple[Public | None, Indices]:
    """The public images, on the device of the data, and the indices of the training images that they were taken from.

    Args:
        asked: a share of the training data such as "0.1", drawn by the seed class by class; or a data set by name, all
            of its training images.
    """
    nothing = np.empty(0, dtype=np.int64)
    if asked is None:
        return None, nothing
    share = _share(asked)
    if share is not None:
        labels = data.train.labels.cpu().numpy()
        _, taken = hold_out(np.arange(len(labels)), share, stream_seed(seed, "public"), 0, labels)
        if len(taken) < 2:
            raise UserError(f"public {asked} is {len(taken)} of {len(labels)} images: give a larger share")
        return Public(data.train[torch.from_numpy(taken).to(data.train.labels.device)], data.classes, True), taken
    other = load(asked, root)
    if other.shape != data.shape:
        raise UserError(
            f"the public images of {asked} have the shape {_in_words(other.shape)}, those of {data.name} "
            f"{_in_words(data.shape)}: give a data set of the same shape, or a share such as --public 0.1"
        )
    same = other.class_names == data.class_names
    return Public(other.train.to(data.train.labels.device), other.classes, same), nothing


def _share(asked: str) -> float | None:
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
