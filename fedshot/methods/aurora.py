"""AURORA: decoupled uncertainty with the log prior attenuated and a hinge on lambda (the notes' V14)."""

from fedshot.local.weighting import DecoupledUncertainty, EntropyWeight, Hinge, SigmaLearning, Weighting
from fedshot.method import Client, Method
from fedshot.methods.aligned import Alignment, aligned


def aurora(
    start: EntropyWeight = EntropyWeight(),
    hinge: Hinge = Hinge(),
    sigma: SigmaLearning = SigmaLearning(),
    alignment: Alignment = Alignment("etf", "present"),
) -> Method:
    """FAFI with prototypes drawn to an ETF under a learned weight that falls to 0: lambda = s(p) L_base / L_align."""

    def weighting(client: Client) -> Weighting:
        return DecoupledUncertainty(start(client.class_counts), sigma, prior="cosine", penalty=hinge)

    return aligned("aurora", alignment, weighting)
