"""How far each of some values lies from the others, when some of them may be chosen by an attacker."""

import math

import torch
from torch import Tensor

_NORMAL = 1.4826  # the median absolute deviation of a normal distribution, times this, is its standard deviation


def distances(values: Tensor, floor: float, times: float = 6.0) -> tuple[Tensor, Tensor, Tensor]:
    """Distance of each value from the median, the median, and the limit beyond which a value is odd.

    limit = max(times · 1.4826 · MAD, floor): half of the values can be anything before median and MAD (the median
    absolute deviation) follow them (Hampel 1974). The floor keeps values that hardly differ from being odd by chance.

    Args:
        values: (K,) or (K, L), each column for itself.

    >>> distances(torch.tensor([1.0, 1.1, 0.9, 1.0, 9.0]), floor=0.5)
    (tensor([ 0.0000,  0.1000, -0.1000,  0.0000,  8.0000]), tensor(1.), tensor(0.8896))
    """
    median = middle(values)
    away = values - median
    spread = _NORMAL * middle(away.abs())
    return away, median, (times * spread).clamp(min=floor)


def middle(values: Tensor) -> Tensor:
    """The median over the first axis; of an even number the mean of the two in the middle.

    >>> middle(torch.tensor([4.0, 1.0, 2.0, 3.0]))
    tensor(2.5000)
    """
    return torch.quantile(values, 0.5, dim=0)


def at_most(right: int, total: int, rate: float) -> float:
    """The chance of at most so many right ones of a total, when each is right at that rate (binomial).

    >>> round(at_most(0, 2, 0.9), 3), at_most(2, 2, 0.9)
    (0.01, 1.0)
    """
    terms = (math.comb(total, k) * rate**k * (1 - rate) ** (total - k) for k in range(right + 1))
    return 1.0 if right >= total else sum(terms)
