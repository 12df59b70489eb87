"""Classification of the images as they are, contrast of their views, nothing else (the notes' V24)."""

from dataclasses import replace

from torch import Tensor

from fedshot.local.objective import Objective, Step, Term
from fedshot.method import Client, Method, Views
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CONTRAST, PLAIN_CLASSIFICATION


def raw_supcon(scale: float = 1.0) -> Method:
    """CE on plain images + scale SupCon on two views."""

    def contrast(step: Step) -> Tensor:
        return scale * CONTRAST.value(step)

    def objective(client: Client) -> Objective:
        return Objective(base=(PLAIN_CLASSIFICATION, Term("contrast", contrast)))

    return replace(fafi(), name="raw_supcon", objective=objective, views=Views(2, plain=True))
