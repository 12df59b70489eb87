"""A client's statistics of common features: class means, and the covariance within classes."""

import torch
from torch import Tensor
from torch.nn import functional

from fedshot.models.common import CommonFeatures
from fedshot.symmetric import pack_symmetric

_CHUNK = 2048  # images at once


def common_statistics(images: Tensor, labels: Tensor, classes: int, width: int, mirrored: bool) -> dict[str, Tensor]:
    """`means` (C, D), zeros for a class without images, and the packed `covariance` (D·(D + 1)/2,) in half precision.

    Args:
        images: (N, channels, H, W) uint8.
        mirrored: whether an image and its mirror are one to the task.
    """
    channels, height, across = images.shape[1:]
    look = CommonFeatures((channels, height, across), width, mirrored).to(images.device)
    total = torch.zeros(classes, width, dtype=torch.float64, device=images.device)
    products = torch.zeros(width, width, dtype=torch.float64, device=images.device)
    for part, their in zip(images.split(_CHUNK), labels.split(_CHUNK), strict=True):
        found = look(part / 255)
        total += (functional.one_hot(their, classes).to(found).T @ found).double()
        products += (found.T @ found).double()
    counts = torch.bincount(labels, minlength=classes).double()[:, None]
    means = total / counts.clamp(min=1)
    within = (products - means.T @ (counts * means)) / len(labels)
    return {"means": means.float(), "covariance": pack_symmetric(within).half()}
