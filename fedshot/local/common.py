"""A client's statistics of common features: class means, and the covariance within classes."""

import torch
from torch import Tensor
from torch.nn import functional

from fedshot.local.familiarity import class_counts
from fedshot.models.look import Look
from fedshot.symmetric import pack_lower

_CHUNK = 2048  # images at once
_LEAST_SHARE = 1e-5  # of the mean variance, added to each: few images do not fill all directions
_LEAST = 1e-8  # the same for images that are all alike


def common_statistics(images: Tensor, labels: Tensor, classes: int, look: Look) -> dict[str, Tensor]:
    """`centre` (D,), the mean of all images; and in half precision `means` (C, D) and the packed `root` (D·(D + 1)/2,).

    Means are those of the classes less the centre, zeros for a class without images. The root is the lower Cholesky
    root of the covariance within classes, with a little added to each variance.

    Args:
        images: (N, channels, H, W) uint8.
        look: from pixels in [0, 1] to common features (N, D), on the device of the images.
    """
    total = torch.zeros(classes, look.width, dtype=torch.float64, device=images.device)
    products = torch.zeros(look.width, look.width, dtype=torch.float64, device=images.device)
    origin = torch.zeros_like(total[0])  # near the centre: sums of what is far from 0 lose digits
    for number, (part, their) in enumerate(zip(images.split(_CHUNK), labels.split(_CHUNK), strict=True)):
        found = look(part / 255).double()  # the root of a difference of sums needs every digit
        origin = origin if number else found.mean(0)
        found -= origin
        total += functional.one_hot(their, classes).to(found).T @ found
        products += found.T @ found
    counts = class_counts(labels, classes).double()[:, None]
    means = total / counts.clamp(min=1)
    centre = total.sum(0) / len(labels)
    apart = torch.where(counts > 0, means - centre, 0)  # ten times smaller, so that rounding loses ten times less
    within = (products - means.T @ (counts * means)) / len(labels)
    # half precision is too coarse for a covariance that is to be inverted, and good enough for its root
    within.diagonal().add_(_LEAST_SHARE * within.diagonal().mean().clamp(min=0) + _LEAST)
    root = pack_lower(torch.linalg.cholesky(within))
    return {"centre": (origin + centre).float(), "means": apart.half(), "root": root.half()}
