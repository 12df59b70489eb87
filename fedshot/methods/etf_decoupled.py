"""Weights and sigmas decoupled by stop-gradients, the data term attenuated (the notes' V12)."""

from fedshot.local.weighting import DecoupledUncertainty, EntropyWeight, SigmaLearning, Weighting
from fedshot.method import Client, Method
from fedshot.methods.aligned import Alignment, aligned


def etf_decoupled(
    start: EntropyWeight = EntropyWeight(),
    sigma: SigmaLearning = SigmaLearning(),
    alignment: Alignment = Alignment("etf"),
) -> Method:
    """Attenuates sg(L_align) / 2 sigma_align^2 by a cosine: lambda = L_base / (s L_align) grows without bound."""

    def weighting(client: Client) -> Weighting:
        return DecoupledUncertainty(start(client.class_counts), sigma, data="cosine")

    return aligned("etf_decoupled", alignment, weighting)
