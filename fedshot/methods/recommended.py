"""The method that this laboratory recommends: clients that know how an image is turned, a server that asks around."""

from fedshot.fusion.routed import routed
from fedshot.local.objective import Objective
from fedshot.method import Client, Method, Views
from fedshot.methods.terms import FAFI_TERMS
from fedshot.models import Classifier, PrototypeHead, build
from fedshot.models.turned import TurnedClassifier, turns_of
from fedshot.options import NotNegative, options_of
from fedshot.sections import ROUTING
from fedshot.task import Task


def recommended(
    sharpness: NotNegative = 1.5, confidence: NotNegative = 0.15, share: NotNegative = 1.25, ridge: NotNegative = 0.2
) -> Method:
    """FAFI's objective on joint labels (class, turn of the image), and the rule `routed`.

    Every image is shown in one of its four quarter turns, and its class is the pair of both: features must know more
    of what they see than tells the client's few classes apart, so that the unfamiliar looks unfamiliar. Beside its
    weights, in half precision, a client sends statistics of common features, which the server adds up over clients.
    """

    def objective(client: Client) -> Objective:
        return Objective(base=FAFI_TERMS)

    return Method(
        "recommended",
        turned_model,
        objective,
        routed(sharpness, confidence, share, ridge),
        statistics=ROUTING,
        views=Views(turned=True),
        largest_batch=128,  # a client needs many steps more than large ones
        settings={
            "validation": 0.1,
            "validation_most": 256,  # what is measured on them needs some hundreds, not a share
            "lr": 0.1,
            "schedule": "cosine",
            "weight_decay": 5e-4,
            "upload_precision": "bf16",
        },
        of_rule=tuple(options_of(routed)),
    )


def turned_model(task: Task) -> Classifier:
    """The encoder of the task with a prototype for each class in each turn."""
    turns = turns_of(task.shape)
    joint = build(task, lambda width, classes: PrototypeHead(width, turns * classes))
    return TurnedClassifier(joint.encoder, joint.head, turns)
