"""Prototypes drawn to random unit anchors under a constant weight (the notes' V5a)."""

from fedshot.local.weighting import Scheduled
from fedshot.method import Method
from fedshot.methods.aligned import Alignment, aligned
from fedshot.options import NotNegative


def random_anchors(weight: NotNegative = 1.0, alignment: Alignment = Alignment("random")) -> Method:
    """FAFI + weight MSE(prototypes, random unit anchors)."""
    return aligned("random_anchors", alignment, lambda client: Scheduled(weight))
