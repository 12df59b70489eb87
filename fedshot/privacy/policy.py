"""What a client tells of how many images of each class it holds. Free of torch: a spec is checked with it."""

import math
from dataclasses import dataclass
from typing import Literal

ALLOWED = "exact, withheld, or noised:EPSILON such as noised:1"


@dataclass(frozen=True)
class CountsPolicy:
    """`exact` counts, none (`withheld`), or counts `noised` so that they are epsilon-differentially private."""

    kind: Literal["exact", "withheld", "noised"] = "exact"
    epsilon: float = math.inf  # of noised counts; the smaller, the more noise

    @classmethod
    def parse(cls, text: str) -> "CountsPolicy":
        """A policy as it is typed; ValueError for anything else.

        >>> CountsPolicy.parse("noised:0.5")
        CountsPolicy(kind='noised', epsilon=0.5)
        """
        if text == "exact":
            return cls()
        if text == "withheld":
            return cls("withheld", 0.0)
        kind, _, number = text.partition(":")
        try:
            epsilon = float(number)
        except ValueError:
            epsilon = math.nan
        if kind != "noised" or not (math.isfinite(epsilon) and epsilon > 0):
            raise ValueError(f"write {ALLOWED}")
        return cls("noised", epsilon)

    @property
    def exact(self) -> bool:
        return self.kind == "exact"

    def __str__(self) -> str:
        return f"noised:{self.epsilon:g}" if self.kind == "noised" else self.kind

    def at_least(self, other: "CountsPolicy") -> bool:
        """Whether this one tells no more than the other.

        >>> limit = CountsPolicy("noised", 1.0)
        >>> [CountsPolicy.parse(text).at_least(limit) for text in ("withheld", "noised:2", "exact")]
        [True, False, False]
        """
        return self.epsilon <= other.epsilon


def stricter(one: str, other: str) -> str:
    """Of two policies as typed, the one that tells less: a client may withhold what a job would let it tell.

    >>> stricter("exact", "noised:1"), stricter("withheld", "noised:1")
    ('noised:1', 'withheld')
    """
    return one if CountsPolicy.parse(one).at_least(CountsPolicy.parse(other)) else other
