"""FAFI, Zeng et al., ICML 2025: learnable prototypes and supervised contrast (the notes' V4)."""

from fedshot.fusion import features
from fedshot.local.objective import Objective
from fedshot.method import Client, Method
from fedshot.methods.terms import FAFI_TERMS
from fedshot.models import Classifier, PrototypeHead, build
from fedshot.task import Task


def fafi() -> Method:
    """Cross-entropy, supervised contrast, prototype–feature and prototype–prototype terms, all of weight 1."""

    def objective(client: Client) -> Objective:
        return Objective(base=FAFI_TERMS)

    return Method("fafi", prototype_model, objective, features())


def prototype_model(task: Task) -> Classifier:
    """The encoder of the task with one learnable prototype for each class."""
    return build(task, PrototypeHead)
