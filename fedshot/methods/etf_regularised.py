"""The decoupled form with a penalty on a small sigma (the notes' V13)."""

from fedshot.local.weighting import DecoupledUncertainty, EntropyWeight, InverseVariance, SigmaLearning, Weighting
from fedshot.method import Client, Method
from fedshot.methods.aligned import Alignment, aligned
from fedshot.options import NotNegative


def etf_regularised(
    gamma: NotNegative = 1e-5,
    start: EntropyWeight = EntropyWeight(),
    sigma: SigmaLearning = SigmaLearning(),
    alignment: Alignment = Alignment("etf"),
) -> Method:
    """V12 + gamma / sigma_align^2. lambda stays below L_base / (2 gamma), which at 1e-5 is no bound in practice."""

    def weighting(client: Client) -> Weighting:
        return DecoupledUncertainty(start(client.class_counts), sigma, data="cosine", penalty=InverseVariance(gamma))

    return aligned("etf_regularised", alignment, weighting)
