"""FAFI whose contrast looks harder at hard negatives, and mixes further ones (Dong et al. 2024)."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedshot.local import losses
from fedshot.local.objective import Objective, Step, Term
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CLASSIFICATION, CONTRAST, PROTOTYPE_FEATURE, PROTOTYPE_PROTOTYPE
from fedshot.options import NotNegative


def hard_negatives(beta: NotNegative = 1.0, synthetic: Annotated[int, Field(ge=0)] = 8) -> Method:
    """SupCon with negatives of weight ~ exp(beta similarity), and `synthetic` mixed ones for every anchor."""

    def hard(step: Step) -> Tensor:
        return losses.hard_contrast(step.unit, step.labels, 0.07, beta, synthetic)

    def objective(client: Client) -> Objective:
        contrast = Term("contrast", hard) if beta or synthetic else CONTRAST
        return Objective(base=(CLASSIFICATION, contrast, PROTOTYPE_FEATURE, PROTOTYPE_PROTOTYPE))

    return replace(fafi(), name="hard_negatives", objective=objective)
