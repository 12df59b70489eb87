"""FAFI for clients with unequal classes: contrast, sampling and classifier that favour no class."""

from dataclasses import replace
from typing import Literal

from torch import Tensor

from fedshot.local import losses
from fedshot.local.objective import Objective, Step, Term
from fedshot.method import Client, Method, Views
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CONTRAST, PROTOTYPE_PROTOTYPE, prototypes
from fedshot.options import NotNegative

BALANCED_CONTRAST = Term("contrast", lambda s: losses.balanced_supcon(s.unit, s.labels, temperature=0.07))


def balanced_contrast(
    contrast: Literal["plain", "balanced"] = "balanced",
    sampling: Literal["shuffled", "balanced"] = "balanced",
    tau: NotNegative = 1.0,
) -> Method:
    """FAFI with class-balanced SupCon, every class sampled alike, and CE(f P^T + tau log prior, y)."""

    def objective(client: Client) -> Objective:
        prior = _seen(client, sampling).clamp(min=1) ** tau  # (C,) up to a factor, which cancels

        def classification(step: Step) -> Tensor:
            return losses.balanced_softmax(step.logits, step.labels, prior)

        def prototype_feature(step: Step) -> Tensor:
            return losses.balanced_softmax(step.unit @ prototypes(step).T, step.labels, prior)

        return Objective(
            base=(
                Term("classification", classification),
                BALANCED_CONTRAST if contrast == "balanced" else CONTRAST,
                Term("prototype_feature", prototype_feature),
                PROTOTYPE_PROTOTYPE,
            )
        )

    views = Views(2, balanced=sampling == "balanced")
    return replace(fafi(), name="balanced_contrast", objective=objective, views=views)


def _seen(client: Client, sampling: str) -> Tensor:
    """How many images of each class an epoch shows, (C,): balanced sampling shows all held classes alike."""
    counts = client.train.labels.new_tensor(client.class_counts)
    held = counts > 0
    return held * counts.sum() / held.sum() if sampling == "balanced" else counts
