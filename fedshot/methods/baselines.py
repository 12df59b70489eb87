"""Classic baselines: plain cross-entropy with a linear head, fused in four ways."""

from dataclasses import replace

from fedshot.fusion import average as average_parameters
from fedshot.fusion import logits, nearest_prototype
from fedshot.fusion import otfusion as transport
from fedshot.local.objective import Objective
from fedshot.method import Client, Method
from fedshot.methods.terms import CLASSIFICATION
from fedshot.models import LinearHead, build


def fedavg() -> Method:
    """Cross-entropy with a linear head; parameters and BatchNorm statistics averaged once (McMahan et al. 2017)."""

    def objective(client: Client) -> Objective:
        return Objective(base=(CLASSIFICATION,))

    return Method("fedavg", lambda task: build(task, LinearHead), objective, average_parameters())


def ensemble() -> Method:
    """The same clients as fedavg, kept as an ensemble of logits weighted by samples."""
    return replace(fedavg(), name="ensemble", fusion=logits())


def fedproto() -> Method:
    """The same clients, classified by the nearest mean feature (Tan et al. 2022, arXiv:2105.00243).

    The paper's pull of features to global prototypes needs the server's answer, so one shot has none of it.
    """
    return replace(fedavg(), name="fedproto", fusion=nearest_prototype())


def otfusion() -> Method:
    """The same clients, their channels matched by optimal transport before averaging (Singh & Jaggi 2020)."""
    return replace(fedavg(), name="otfusion", fusion=transport())
