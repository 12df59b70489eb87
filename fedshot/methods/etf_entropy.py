"""ETF alignment with a weight for each client from the entropy of its labels (the notes' V9)."""

from typing import Literal

from fedshot.local.weighting import EntropyWeight, Scheduled
from fedshot.method import Method
from fedshot.methods.aligned import Alignment, aligned


def etf_entropy(
    start: EntropyWeight = EntropyWeight(),
    anneal: Literal["linear", "cosine", "constant"] = "linear",
    alignment: Alignment = Alignment("etf"),
) -> Method:
    """FAFI + lambda_k a(p) MSE(prototypes, ETF), lambda_k rising with the entropy of client k's labels."""
    return aligned("etf_entropy", alignment, lambda client: Scheduled(start(client.class_counts), anneal))
