"""ETF alignment under a weight learned by uncertainty (the notes' V10)."""

from typing import Literal

from fedshot.local.weighting import CoupledUncertainty, EntropyWeight, SigmaLearning
from fedshot.method import Method
from fedshot.methods.aligned import Alignment, aligned


def etf_uncertainty(
    form: Literal["rescaled", "first"] = "rescaled",
    start: EntropyWeight = EntropyWeight(),
    sigma: SigmaLearning = SigmaLearning(),
    alignment: Alignment = Alignment("etf"),
) -> Method:
    """lambda = sigma_local^2 / sigma_align^2 learned with the weights; it settles at L_base / L_align.

    `form=first` is the loss as first written: the sigmas start at 1 and all gradients are divided by 2 sigma_local^2.
    """
    if form == "first":
        return aligned("etf_uncertainty", alignment, lambda client: CoupledUncertainty(1.0, sigma, rescaled=False))
    return aligned("etf_uncertainty", alignment, lambda client: CoupledUncertainty(start(client.class_counts), sigma))
