"""FAFI whose prototypes are drawn to fixed anchors: what all alignment variants share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from fedshot.local import losses
from fedshot.local.anchors import anchors as make_anchors
from fedshot.local.objective import Objective, Step, Term
from fedshot.local.weighting import Scheduled, Weighting
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import FAFI_TERMS, prototypes
from fedshot.models import prototypes_of
from fedshot.options import NotNegative

AnchorKind = Literal["etf", "random", "zero", "etf_scaled", "random_scaled", "semantic"]
Measure = Literal["all", "present", "cosine", "features", "features_cosine"]


@dataclass(frozen=True)
class Alignment:
    """Where prototypes are drawn to, how the distance is measured, and the controls.

    `measure`: mean square error over all classes, over the classes of the batch, or 1 - cosine; with `features` and
    `features_cosine` it is the features that are drawn to the anchor of their class, and prototypes are left alone.
    `file`: class vectors for semantic anchors. `weight`: a constant lambda in place of the method's own policy; 0
    leaves the base loss alone.
    """

    anchors: AnchorKind = "etf"
    measure: Measure = "all"
    file: str | None = None
    weight: NotNegative | None = None

    def targets(self, client: Client) -> Tensor:
        """The anchors of this run, (C, d), on the client's device."""
        task, width = client.task, client.model.encoder.width
        found = make_anchors(self.anchors, task.classes, width, task.seed, self.file)
        return found.to(client.train.labels.device, non_blocking=True)

    def term(self, target: Callable[[Step], Tensor]) -> Term:
        """The alignment term to a target that may move with the step."""
        measure = {
            "all": lambda s: losses.mse_all(prototypes(s), target(s)),
            "present": lambda s: losses.mse_present(prototypes(s), target(s), s.labels),
            "cosine": lambda s: losses.cosine(prototypes(s), target(s)),
            "features": lambda s: losses.mse_all(s.unit, target(s)[s.labels]),
            "features_cosine": lambda s: losses.cosine(s.unit, target(s)[s.labels]),
        }
        return Term("alignment", measure[self.measure])


def aligned(name: str, alignment: Alignment, weighting: Callable[[Client], Weighting]) -> Method:
    """FAFI plus the alignment of its prototypes, weighed by a policy."""

    def objective(client: Client) -> Objective:
        anchors = alignment.targets(client)
        return Objective(
            FAFI_TERMS, (alignment.term(lambda _: anchors),), policy(alignment, weighting, client), anchors
        )

    return replace(fafi(), name=name, objective=objective)


def policy(alignment: Alignment, weighting: Callable[[Client], Weighting], client: Client) -> Weighting:
    """The method's policy, or the constant that replaces it."""
    return weighting(client) if alignment.weight is None else Scheduled(alignment.weight)


def initial_prototypes(client: Client) -> Tensor:
    """The shared prototypes before any training, (C, d)."""
    found = prototypes_of(client.model)
    if found is None:
        raise TypeError("alignment needs a model with a prototype head")
    return found.detach().clone()
