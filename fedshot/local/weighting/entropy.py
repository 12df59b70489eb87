"""A lambda for each client from the entropy of its labels (V9)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedshot.options import AboveZero


def label_entropy(class_counts: Sequence[int]) -> float:
    """H = -sum_c pi_c log2 pi_c in bits, of the label histogram; 0 for an empty client.

    >>> label_entropy([5, 5, 0])
    1.0
    """
    total = sum(class_counts)
    return -sum(n / total * math.log2(n / total) for n in class_counts if n) + 0.0


@dataclass(frozen=True)
class EntropyWeight:
    """lambda_k = minimum + (maximum - minimum) H_k / log2 C: the more classes a client sees, the larger.

    >>> EntropyWeight(1.0, 9.0)([5, 5, 0, 0])
    5.0
    """

    minimum: AboveZero = 0.1
    maximum: AboveZero = 15.0

    def __call__(self, class_counts: Sequence[int]) -> float:
        share = label_entropy(class_counts) / math.log2(len(class_counts)) if len(class_counts) > 1 else 0.0
        return self.minimum + (self.maximum - self.minimum) * share
