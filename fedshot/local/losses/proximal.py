"""How far parameters have moved from their start."""

from collections.abc import Sequence

import torch
from torch import Tensor


def proximal(parameters: Sequence[Tensor], start: Sequence[Tensor]) -> Tensor:
    """FedProx's pull to the common start, Li et al. 2020, eq. 2 (arXiv:1812.06127), without its weight.

    L = 1/2 sum_i |theta_i - theta_i^0|^2

    Args:
        parameters: theta, at least one tensor.
        start: theta^0, of the same shapes.

    >>> proximal([torch.tensor([1.0, 2.0]), torch.tensor([3.0])], [torch.zeros(2), torch.zeros(1)])
    tensor(7.)
    """
    moved = [(now - then).square().sum() for now, then in zip(parameters, start, strict=True)]
    return torch.stack(moved).sum() / 2
