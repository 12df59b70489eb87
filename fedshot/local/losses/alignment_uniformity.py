"""Alignment of two views and uniformity on the sphere."""

import math

import torch
from torch import Tensor


def view_alignment(first: Tensor, second: Tensor) -> Tensor:
    """Alignment, Wang & Isola 2020, eq. 2 with exponent 2 (arXiv:2005.10242).

    L = mean_i ||f_i - g_i||^2

    Args:
        first: unit vectors f of one view, (B, D).
        second: unit vectors g of the other view of the same images, (B, D).

    >>> view_alignment(torch.eye(2), torch.eye(2).flip(0))
    tensor(2.)
    """
    return (first - second).square().sum(dim=1).mean()


def uniformity(features: Tensor) -> Tensor:
    """Uniformity, Wang & Isola 2020, eq. 3 with t = 2 (arXiv:2005.10242).

    L = log mean_{i != j} exp(-2 ||f_i - f_j||^2)

    Args:
        features: unit vectors f, (B, D).

    The pairs i = j are left out: they would add the constant exp(0) / B to the mean. Between 0 (all equal) and -8 (two
    opposite points). Fewer than two features have no pair and give 0.

    >>> uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    tensor(-8.)
    """
    count = len(features)
    if count < 2:
        return 0 * features.sum()
    length = features.square().sum(dim=1)  # (B,)
    distance = length[:, None] + length - 2 * features @ features.T  # (B, B), squared
    itself = torch.eye(count, dtype=torch.bool, device=features.device)
    exponent = (-2 * distance).masked_fill(itself, torch.finfo(features.dtype).min)
    return exponent.flatten().logsumexp(dim=0) - math.log(count * (count - 1))
