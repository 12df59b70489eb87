"""Uncertainty weighting annealed from outside (the notes' V11)."""

from typing import Literal

from fedshot.local.weighting import CoupledUncertainty, EntropyWeight, SigmaLearning, Weighting
from fedshot.method import Client, Method
from fedshot.methods.aligned import Alignment, aligned


def etf_annealed_uncertainty(
    anneal: Literal["linear", "cosine"] = "linear",
    start: EntropyWeight = EntropyWeight(),
    sigma: SigmaLearning = SigmaLearning(),
    alignment: Alignment = Alignment("etf"),
) -> Method:
    """V10 with its alignment term multiplied by a(p): the learned lambda grows as 1/a and cancels the annealing."""

    def weighting(client: Client) -> Weighting:
        return CoupledUncertainty(start(client.class_counts), sigma, schedule=anneal)

    return aligned("etf_annealed_uncertainty", alignment, weighting)
