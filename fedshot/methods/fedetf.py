"""A fixed simplex ETF as classifier, Li et al., ICCV 2023 (arXiv:2303.10058)."""

from torch import Tensor

from fedshot.fusion import logits
from fedshot.local.anchors import anchors
from fedshot.local.losses import balanced_softmax
from fedshot.local.objective import Objective, Step, Term
from fedshot.method import Client, Method
from fedshot.models import Classifier, EtfHead, build
from fedshot.options import AboveZero
from fedshot.task import Task


def fedetf(scale: AboveZero = 10.0) -> Method:
    """Features mapped to C dimensions, made unit, compared with a fixed ETF under a learned scale; balanced softmax."""

    def model(task: Task) -> Classifier:
        etf = anchors("etf", task.classes, task.classes, task.seed).T  # one column for each class
        return build(task, lambda width, classes: EtfHead(width, etf, scale))

    def objective(client: Client) -> Objective:
        counts = client.train.labels.new_tensor(client.class_counts)

        def balanced(step: Step) -> Tensor:
            return balanced_softmax(step.logits, step.labels, counts)

        return Objective(base=(Term("balanced_softmax", balanced),))

    return Method("fedetf", model, objective, logits())
