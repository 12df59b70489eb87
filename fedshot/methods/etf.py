"""Prototypes drawn to a simplex ETF (the notes' V7)."""

from typing import Literal

from fedshot.local.weighting import Scheduled
from fedshot.method import Method
from fedshot.methods.aligned import Alignment, aligned
from fedshot.options import NotNegative


def etf(
    weight: NotNegative = 5.0,
    anneal: Literal["linear", "cosine", "constant"] = "linear",
    alignment: Alignment = Alignment("etf"),
) -> Method:
    """FAFI + weight a(p) MSE(prototypes, simplex ETF). The notes say constant 5, their code annealed linearly."""
    return aligned("etf", alignment, lambda client: Scheduled(weight, anneal))
