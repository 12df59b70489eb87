"""What a client minimises: base terms, alignment terms, and the policy that weighs the two."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedshot.local.weighting import Scheduled, Weighting
from fedshot.models import Classifier


@dataclass(frozen=True)
class Step:
    """What a term may read in one training step: B images, each as V augmented views and perhaps as it is."""

    model: Classifier
    features: Tensor  # (V*B, d) raw features, all of view 1, then all of view 2, …
    unit: Tensor  # (V*B, d) the same made unit
    logits: Tensor  # (V*B, C)
    labels: Tensor  # (V*B,)
    views: int
    plain_logits: Tensor | None  # (B, C) of the images without augmentation, where the method asks for them
    progress: Tensor  # 0-dim, in [0, 1)

    @property
    def image_labels(self) -> Tensor:
        """The label of each image once, (B,)."""
        return self.labels[: len(self.labels) // self.views]


@dataclass(frozen=True)
class Term:
    """One summand of a loss, by name."""

    name: str
    value: Callable[[Step], Tensor]


@dataclass(frozen=True)
class Objective:
    """loss = weighting(sum of base terms, sum of alignment terms, progress)."""

    base: tuple[Term, ...]
    align: tuple[Term, ...] = ()
    weighting: Weighting = field(default_factory=lambda: Scheduled(0.0))
    anchors: Tensor | None = None  # (C, d) where prototypes are drawn to, for telemetry

    def losses(self, step: Step) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The base loss, the alignment loss, and every term by name; 0-dim tensors.

        An objective without alignment terms has an alignment loss of 0.
        """
        base = [(term.name, term.value(step)) for term in self.base]
        align = [(term.name, term.value(step)) for term in self.align]
        zero = torch.zeros((), device=step.labels.device)
        return sum((v for _, v in base), zero), sum((v for _, v in align), zero), dict(base + align)
