"""FAFI's prototypes without its contrast: a loss of single images, so that it can be trained under dp_noise."""

from dataclasses import replace

from fedshot.local.objective import Objective
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CLASSIFICATION, PROTOTYPE_PROTOTYPE


def private_prototypes() -> Method:
    """Cross-entropy of the views against learnable prototypes, and the prototypes' own term, which reads no image."""

    def objective(client: Client) -> Objective:
        return Objective(base=(CLASSIFICATION, PROTOTYPE_PROTOTYPE))

    return replace(fafi(), name="private_prototypes", objective=objective)
