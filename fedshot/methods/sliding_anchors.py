"""Prototypes led from their shared start to the ETF (the notes' V8)."""

from dataclasses import replace

from torch import Tensor

from fedshot.local.objective import Objective, Step
from fedshot.local.weighting import Scheduled
from fedshot.method import Client, Method
from fedshot.methods.aligned import Alignment, initial_prototypes, policy
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import FAFI_TERMS
from fedshot.options import NotNegative


def sliding_anchors(weight: NotNegative = 5.0, alignment: Alignment = Alignment("etf")) -> Method:
    """FAFI + weight (1 - p) MSE(prototypes, (1 - p) start + p anchors), p over the whole run."""

    def objective(client: Client) -> Objective:
        start, end = initial_prototypes(client), alignment.targets(client)

        def target(step: Step) -> Tensor:
            return (1 - step.progress) * start + step.progress * end

        weighting = policy(alignment, lambda client: Scheduled(weight, "linear"), client)
        return Objective(FAFI_TERMS, (alignment.term(target),), weighting, end)

    return replace(fafi(), name="sliding_anchors", objective=objective)
