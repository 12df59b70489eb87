"""Where noise comes from: from the run's seed, so that an experiment can be repeated; or from the operating system.

Whoever knows the seed can take seeded noise off again: it shows what privacy costs, and gives none.
"""

import math
import os
from collections.abc import Sequence

import torch
from torch import Tensor

from fedshot.partition.own import OWN
from fedshot.seeds import stream
from fedshot.spec import Spec


def seeded(spec: Spec) -> bool:
    """Whether noise comes from the seed, which the server knows: clients with data of their own never take it there."""
    return spec.noise_source == "seeded" and (spec.recipe != OWN or spec.partition_file is not None)


class Randomness:
    """Draws from a generator, or from the system's own source where there is none."""

    def __init__(self, generator: torch.Generator | None) -> None:
        self._generator = generator

    @classmethod
    def of(cls, spec: Spec, *name: str | int) -> "Randomness":
        """The stream of that name as a run asks for it."""
        return cls(stream(spec.seed, "privacy", *name) if seeded(spec) else None)

    def uniform(self, count: int) -> Tensor:
        """Numbers in (0, 1] with 53 random bits each, (count,) double."""
        if self._generator is not None:
            return 1 - torch.rand(count, dtype=torch.float64, generator=self._generator)
        drawn = torch.frombuffer(bytearray(os.urandom(8 * count)), dtype=torch.int64) if count else torch.empty(0)
        return ((drawn.long() & (2**53 - 1)) + 1).double() / 2**53

    def normal(self, shape: Sequence[int]) -> Tensor:
        """Standard normal numbers in double: seeded ones by torch; the system's by Box & Muller 1958.

        The system's are sums of four, halved: a single draw of a float could be recognised by its last bits (Holohan &
        Braghin 2021, arXiv:2107.10138).
        """
        count = math.prod(shape)
        if self._generator is not None:
            return torch.randn(count, dtype=torch.float64, generator=self._generator).view(tuple(shape))
        length, angle = self.uniform(4 * count), self.uniform(4 * count)
        every = (-2 * length.log()).sqrt() * (2 * math.pi * angle).cos()
        return every.view(4, count).sum(0).div(2).view(tuple(shape))

    def geometric(self, epsilon: float, count: int) -> Tensor:
        """Two-sided geometric noise, Ghosh et al. 2009 (arXiv:0811.2841): P(z) ∝ exp(-epsilon |z|), (count,) int64.

        Added to counts that one image changes by 1, it makes them epsilon-differentially private.
        """
        up, down = (torch.floor(self.uniform(count).log() / -epsilon) for _ in range(2))
        return (up - down).long()
