"""Contrast switched on by the agreement of the two views (the notes' V23)."""

from dataclasses import replace

from torch import Tensor

from fedshot.local import losses
from fedshot.local.objective import Objective, Step, Term
from fedshot.method import Client, Method, Views
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CONTRAST, PLAIN_CLASSIFICATION


def gated_supcon(scale: float = 30.0, power: float = 2.0) -> Method:
    """CE on plain images + scale g^power SupCon on two views, g how often the views' predictions agree."""

    def gated(step: Step) -> Tensor:
        gate = losses.view_agreement(*step.logits.chunk(2))
        return scale * gate**power * CONTRAST.value(step)

    def objective(client: Client) -> Objective:
        return Objective(base=(PLAIN_CLASSIFICATION, Term("gated_contrast", gated)))

    return replace(fafi(), name="gated_supcon", objective=objective, views=Views(2, plain=True))
