"""Files are believed only after a look: shapes, kinds of numbers, counts, label range."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedshot.data.dataset import Labelled
from fedshot.errors import UserError

CHUNK = 10_000  # images counted at a time


def bad_file(path: Path | str, expected: str, found: object) -> UserError:
    """The error for a file that is not what its name says.

    >>> str(bad_file("data/mnist.npz", "a packed data set", "no array y_test"))
    'data/mnist.npz is not a packed data set (no array y_test); replace it by the original file'
    """
    return UserError(f"{path} is not {expected} ({found}); replace it by the original file")


def labelled(images: np.ndarray, labels: np.ndarray, classes: int, path: Path | str) -> Labelled:
    """Images (N, channels, H, W) and labels (N,) as tensors, after checking that they fit each other."""
    expected = "a set of labelled images"
    if images.dtype != np.uint8 or images.ndim != 4:
        raise bad_file(path, expected, f"images are {images.dtype} of shape {images.shape}, not uint8 of 4 dimensions")
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise bad_file(path, expected, f"labels are {labels.dtype} of shape {labels.shape}, not a row of whole numbers")
    if len(images) != len(labels) or len(images) == 0:
        raise bad_file(path, expected, f"{len(images)} images, {len(labels)} labels")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise bad_file(path, expected, f"labels from {low} to {high}, allowed are 0 to {classes - 1}")
    return Labelled(
        torch.from_numpy(np.require(images, requirements=["C", "W"])), torch.from_numpy(labels.astype(np.int64))
    )


def statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of pixels in [0, 1], from the counts of the 256 grey values: exact.

    images: (N, channels, H, W) uint8. A channel of one constant value has deviation 1/255, not 0.

    >>> statistics(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    ((0.5,), (0.5,))
    """
    values = torch.arange(256, dtype=torch.float64) / 255
    mean, std = [], []
    for channel in range(images.shape[1]):
        pieces = [torch.bincount(piece[:, channel].flatten(), minlength=256) for piece in images.split(CHUNK)]
        share = torch.stack(pieces).sum(0).double()  # (256,)
        share /= share.sum()
        centre = float((share * values).sum())
        mean.append(centre)
        std.append(max(float((share * (values - centre) ** 2).sum()) ** 0.5, 1 / 255))
    return tuple(mean), tuple(std)
