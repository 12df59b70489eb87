"""Alignment and uniformity instead of supervised contrast (the notes' V20)."""

from dataclasses import replace

from torch import Tensor

from fedshot.local import losses
from fedshot.local.objective import Objective, Step, Term
from fedshot.local.weighting import AfterWarmup, DecoupledUncertainty, EntropyWeight, Hinge, SigmaLearning, Weighting
from fedshot.method import Client, Method
from fedshot.methods.aligned import Alignment, policy
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CLASSIFICATION


def align_uniform(
    scale: float = 0.05,
    warmup_epochs: int = 5,
    start: EntropyWeight = EntropyWeight(),
    hinge: Hinge = Hinge(),
    sigma: SigmaLearning = SigmaLearning(),
    alignment: Alignment = Alignment("etf", "present"),
) -> Method:
    """CE + lambda [scale (||f1 - f2||^2 + uniformity) + MSE(prototypes, ETF)], lambda as in AURORA, after a warm-up."""

    def spread(step: Step) -> Tensor:
        first, second = step.unit.chunk(2)
        even = (losses.uniformity(first) + losses.uniformity(second)) / 2
        return scale * (losses.view_alignment(first, second) + even)

    def weighting(client: Client) -> Weighting:
        learned = DecoupledUncertainty(start(client.class_counts), sigma, prior="cosine", penalty=hinge)
        return AfterWarmup(learned, min(1.0, warmup_epochs / client.epochs))

    def objective(client: Client) -> Objective:
        anchors = alignment.targets(client)
        align = (Term("align_uniform", spread), alignment.term(lambda _: anchors))
        return Objective((CLASSIFICATION,), align, policy(alignment, weighting, client), anchors)

    return replace(fafi(), name="align_uniform", objective=objective)
