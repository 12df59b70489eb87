"""What a client minimises: base terms, alignment terms, and the policy that weighs the two."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedshot.local.weighting import Scheduled, Weighting
from fedshot.models import Classifier, unit


@dataclass(frozen=True)
class Step:
    """What a term may read in one training step: B images, each as V augmented views and perhaps as it is."""

    model: Classifier
    features: Tensor  # (V*B, d) raw features, all of view 1, then all of view 2, …
    unit: Tensor  # (V*B, d) the same made unit
    logits: Tensor  # (V*B, C)
    labels: Tensor  # (V*B,)
    image_labels: Tensor  # (B,) the label of each image once
    views: int
    plain_logits: Tensor | None  # (B, C) of the images without augmentation, where the method asks for them
    targets: Tensor | None  # (V*B, T) what the model is to imitate, where the data have it
    progress: Tensor  # 0-dim, in [0, 1)
    encoded: Tensor | None = None  # (V*B, d) where the encoder ends, for telemetry; None if plain images came along

    @classmethod
    def of(
        cls,
        model: Classifier,
        features: Tensor,
        labels: Tensor,
        views: int,
        progress: Tensor,
        targets: Tensor | None = None,
    ) -> "Step":
        """What the model makes of B images with these labels (B,).

        Args:
            features: raw, of V augmented views of each, (V*B, d), and perhaps of the images as they are after them.
            targets: (B, T).
        """
        seen = views * len(labels)
        logits, plain = model.head(features), len(features) > seen  # losses are computed in float32
        return cls(
            model=model,
            features=features[:seen],
            unit=unit(features[:seen]),
            logits=logits[:seen],
            labels=labels.repeat(views),
            image_labels=labels,
            views=views,
            plain_logits=logits[seen:] if plain else None,
            targets=None if targets is None else targets.repeat(views, 1),
            progress=progress,
            encoded=None if plain else features,
        )


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
    reports: tuple[Term, ...] = ()  # what telemetry shows beside the losses; never added to them

    def losses(self, step: Step) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The base loss, the alignment loss, and every term by name; 0-dim tensors.

        An objective without alignment terms has an alignment loss of 0.
        """
        base = [(term.name, term.value(step)) for term in self.base]
        align = [(term.name, term.value(step)) for term in self.align]
        zero = torch.zeros((), device=step.labels.device)
        return sum((v for _, v in base), zero), sum((v for _, v in align), zero), dict(base + align)
