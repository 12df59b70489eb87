"""Random anchors under a weight that falls to 0 over the run (the notes' V6a)."""

from typing import Literal

from fedshot.local.weighting import Scheduled
from fedshot.method import Method
from fedshot.methods.aligned import Alignment, aligned


def annealed_anchors(
    weight: float = 5.0,
    anneal: Literal["linear", "cosine", "constant"] = "linear",
    alignment: Alignment = Alignment("random"),
) -> Method:
    """FAFI + weight (1 - p) MSE(prototypes, random unit anchors)."""
    return aligned("annealed_anchors", alignment, lambda client: Scheduled(weight, anneal))
