"""How far the terms of a step pull the same way: cosines of their gradients, taken where the losses enter the model."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedshot.local.objective import Objective, Step

COSINES = ("gradient_cosine_head", "gradient_cosine_features", "gradient_cosine_contrast")


def comparable(objective: Objective) -> bool:
    """Whether there are two losses to compare."""
    return bool(objective.align or _contrasts(objective))


def gradient_cosines(
    objective: Objective, step: Step, base: Tensor, align: Tensor, terms: dict[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """cos(∇L_b, ∇L_a) over the head's parameters and over the features, cos(∇L_rest, ∇L_contrast) over the features.

    L_b = L_rest + L_contrast: the base terms without and with "contrast" in their names. No gradient goes through the
    encoder, which is what makes a step dear, and none is kept: the step's own backward pass finds everything as it was.

    NaN where one of the two losses does not reach the place, 0 where one of the gradients is 0.
    """
    head = list(step.model.head.parameters())
    over_head = over_features = over_contrast = torch.full_like(base, math.nan)
    of_base, *base_head = _gradients(base, step.encoded, head)
    if objective.align:
        of_align, *align_head = _gradients(align, step.encoded, head)
        over_head = _cosine(base_head, align_head, over_head)
        over_features = _cosine([of_base], [of_align], over_features)
    if contrasts := _contrasts(objective):
        (of_contrast,) = _gradients(torch.stack([terms[name] for name in contrasts]).sum(), step.encoded, [])
        rest = None if of_base is None or of_contrast is None else of_base - of_contrast
        over_contrast = _cosine([rest], [of_contrast], over_contrast)
    return over_head, over_features, over_contrast


def _contrasts(objective: Objective) -> list[str]:
    return [term.name for term in objective.base if "contrast" in term.name]


def _gradients(loss: Tensor, features: Tensor | None, head: Sequence[Tensor]) -> list[Tensor | None]:
    """Over the features, then over each parameter of the head; None where the loss does not reach it."""
    places = [place if place is not None and place.requires_grad else None for place in (features, *head)]
    learned = [place for place in places if place is not None]
    if not loss.requires_grad or not learned:
        return [None] * len(places)
    found = iter(torch.autograd.grad(loss, learned, retain_graph=True, allow_unused=True))
    return [None if place is None else next(found) for place in places]


def _cosine(one: Sequence[Tensor | None], other: Sequence[Tensor | None], absent: Tensor) -> Tensor:
    """Over all places that both losses reach; `absent` where there is none."""
    both = [(a.flatten(), b.flatten()) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    if not both:
        return absent
    a, b = (torch.cat(parts) for parts in zip(*both, strict=True))
    tiny = torch.finfo(a.dtype).tiny
    return (a / a.norm().clamp(min=tiny)) @ (b / b.norm().clamp(min=tiny))
