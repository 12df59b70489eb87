"""Random anchors under a weight that falls to 0 over the run (the notes' V6a)."""

from dataclasses import replace
from typing import Literal

from fedshot.method import Method
from fedshot.methods.aligned import Alignment
from fedshot.methods.etf import etf
from fedshot.options import NotNegative


def annealed_anchors(
    weight: NotNegative = 5.0,
    anneal: Literal["linear", "cosine", "constant"] = "linear",
    alignment: Alignment = Alignment("random"),
) -> Method:
    """FAFI + weight (1 - p) MSE(prototypes, random unit anchors): `etf` with other anchors."""
    return replace(etf(weight, anneal, alignment), name="annealed_anchors")
