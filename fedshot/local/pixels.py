"""What a client's images of a class look like on average: per-class mean and deviation of coarse pixels."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from fedshot.local.familiarity import class_counts

FEWEST = 5  # images that a class needs to be described: the mean of one image would be the image
_COARSE = 8  # rows and columns
_CHUNK = 2048  # images averaged at once


def grid_of(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Channels, rows and columns of coarse images: 8×8, or the image's own size where it is smaller.

    >>> grid_of((3, 32, 32)), grid_of((1, 6, 32))
    ((3, 8, 8), (1, 6, 8))
    """
    channels, height, width = shape
    return channels, min(height, _COARSE), min(width, _COARSE)


def class_pixels(images: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """Mean and deviation of the coarse images of each class, in [0, 1], (C, channels, h, w) each.

    A coarse image is the image averaged over its tiles. Zeros for a class of fewer than `FEWEST` images.

    Args:
        images: (N, channels, H, W) uint8.
        labels: (N,).
    """
    channels, height, width = images.shape[1:]
    shape = grid_of((channels, height, width))
    total = torch.zeros(2, classes, math.prod(shape), dtype=torch.float64, device=images.device)
    for part, their in zip(images.split(_CHUNK), labels.split(_CHUNK), strict=True):
        coarse = functional.adaptive_avg_pool2d(part.float() / 255, shape[1:]).flatten(1).double()  # (n, D)
        member = functional.one_hot(their, classes).to(coarse)  # (n, C)
        total += torch.stack([member.T @ coarse, member.T @ coarse.square()])
    counts = class_counts(labels, classes)[:, None]
    mean, square = total / counts.clamp(min=1)
    std = (square - mean.square()).clamp(min=0).sqrt()
    found = {"mean": mean.clamp(0, 1), "std": std}
    return {name: (value * (counts >= FEWEST)).float().view(classes, *shape) for name, value in found.items()}
