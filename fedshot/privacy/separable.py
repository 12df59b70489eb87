"""Whether a loss is a mean over images: only then has an image a gradient of its own that can be clipped.

Differential privacy bounds what one image can do to a step. If the loss of a batch is the mean of a loss of each image
(with all of its views), that image touches one summand, and clipping the summand bounds it. A contrastive loss compares
the images of a batch with each other: each is in the summands of all, and clipping one of them bounds nothing. Here it
is not believed what a loss is: it is computed, on images of noise, for a batch and for each of its images alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedshot.data.dataset import Labelled
from fedshot.errors import UserError
from fedshot.local.counterparts import tensors_in
from fedshot.local.forward import inputs_of
from fedshot.local.objective import Objective, Step
from fedshot.local.views import draw
from fedshot.method import Client, Method, Views
from fedshot.models import Classifier
from fedshot.models.copies import copy_of
from fedshot.seeds import stream

_IMAGES = 6  # of noise, in a batch
_PROGRESS = (0.0, 0.5, 0.99)  # terms may be switched on late
_CLOSE = 1e-4  # relative
_READS = "it reads the client's images without noise before it trains"


@dataclass(frozen=True)
class Losses:
    """Of one batch, as 0-dim tensors."""

    loss: Tensor
    base: Tensor
    align: Tensor
    terms: dict[str, Tensor]


def without_data(client: Client, class_counts: tuple[int, ...]) -> Client:
    """The client as its objective may see it under differential privacy: no image, and counts that are told anyway.

    What an objective is made of then cannot depend on the images, whatever its code does.
    """
    empty = Labelled(client.train.images[:0], client.train.labels[:0])
    return replace(client, train=empty, validation=None, class_counts=class_counts)


def objective_without_data(method: Method, client: Client, class_counts: tuple[int, ...]) -> Objective:
    """The objective of a client whose data it cannot see; refuses a method that needs to."""
    try:
        objective = method.objective(without_data(client, class_counts))
    except (RuntimeError, ValueError, IndexError, ZeroDivisionError) as error:
        if isinstance(error, UserError):
            raise
        raise _refusal(method, _READS) from None
    if any(not t.isfinite().all() for t in objective.weighting.state_dict().values() if t.is_floating_point()):
        raise _refusal(method, _READS)
    return objective


def losses(
    model: Classifier, objective: Objective, inputs: Tensor, labels: Tensor, views: Views, progress: Tensor
) -> Losses:
    """What an objective says about B images.

    Args:
        inputs: (V*B, channels, H, W), all of view 1, then all of view 2, …, then perhaps the images as they are.
        labels: (B,).
    """
    features = model.encoder(inputs).float()
    base, align, terms = objective.losses(Step.of(model, features, labels, views.augmented, progress))
    return Losses(objective.weighting(base, align, progress), base, align, terms)


@torch.no_grad()
def check_separable(method: Method, client: Client, objective: Objective) -> None:
    """Refuses a method whose loss is not a mean over images; draws images of noise, so that the answer tells nothing.

    Args:
        objective: made without data.
    """
    draws, task = stream(0, "separable"), client.task
    device = client.train.labels.device
    images = torch.randint(0, 256, (_IMAGES, *task.shape), generator=draws, dtype=torch.uint8).to(device)
    labels = (torch.arange(_IMAGES) % min(3, task.classes)).to(device)  # some share a class, unequally often
    labels[-1] = labels[0]
    views, model = method.views, copy_of(client.model).train()
    seeds = draw(views.augmented * _IMAGES, task.augmentation, torch.Generator(device).manual_seed(0))
    inputs = inputs_of(images, seeds, views.plain, task)
    by_image = inputs.view(-1, _IMAGES, *inputs.shape[1:])  # (V, B, …)
    before = _state(objective)
    for moment in _PROGRESS:
        progress = torch.tensor(moment, device=device)
        whole = losses(model, objective, inputs, labels, views, progress)
        alone = [losses(model, objective, by_image[:, i], labels[i : i + 1], views, progress) for i in range(_IMAGES)]
        for name, value in whole.terms.items():
            if not _close(value, [each.terms[name] for each in alone]):
                raise _refusal(
                    method,
                    f"its term {name!r} compares the images of a batch with each other, so that the gradient of one "
                    "image cannot be bounded by itself",
                )
        if not _close(whole.loss, [each.loss for each in alone]):
            raise _refusal(method, "it weighs its terms by the losses of the whole batch, not of each image")
    after = _state(objective)
    if before is None or after is None or any(not torch.equal(a, b) for a, b in zip(before, after, strict=True)):
        raise _refusal(method, "it remembers features of earlier steps, which then reach the model without noise")


def _state(objective: Objective) -> list[Tensor] | None:
    found = tensors_in(objective)
    return None if found is None else [tensor.clone() for tensor in found]


def _close(whole: Tensor, alone: Sequence[Tensor]) -> bool:
    mean = torch.stack(list(alone)).mean()
    return bool(torch.isclose(whole, mean, rtol=_CLOSE, atol=_CLOSE))


def _refusal(method: Method, why: str) -> UserError:
    return UserError(
        f"dp_noise: {method.name} cannot be trained under differential privacy: {why}; choose a method of "
        "cross-entropy alone, e.g. fedavg, ensemble or fedetf (docs/privacy.md)"
    )
