"""Fixed distributions of features, the same for every client of a run: all know its seed, so nothing is sent.

Independent vectors of each kind have mean 0, covariance I / d and, exactly or nearly, length 1, at every width d.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from fedshot.local.anchors import random_directions
from fedshot.seeds import stream

ReferenceKind = Literal["sphere", "gaussian"]


def reference(kind: ReferenceKind, size: int, width: int, seed: int) -> Tensor:
    """Vectors of the distribution, (size, width) float32, from the run's stream named "reference".

    Args:
        kind: "sphere", uniform on the unit sphere; or "gaussian", N(0, I / width).

    >>> reference("sphere", 2, 8, seed=1).norm(dim=1)
    tensor([1., 1.])
    """
    return _DRAWN[kind](size, width, stream(seed, "reference")).float()


def directions(count: int, width: int, seed: int) -> Tensor:
    """Random unit vectors to project on, (count, width) float32, from the run's stream named "directions"."""
    return random_directions(count, width, stream(seed, "directions")).float()


def _gaussian(size: int, width: int, generator: torch.Generator) -> Tensor:
    return torch.randn(size, width, generator=generator, dtype=torch.float64) / math.sqrt(width)


_DRAWN: dict[str, Callable[[int, int, torch.Generator], Tensor]] = {
    "sphere": random_directions,
    "gaussian": _gaussian,
}
