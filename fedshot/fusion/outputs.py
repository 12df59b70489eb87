"""What K models say about images: each model is loaded once; an encoder, or a base, that models share runs once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fedshot.models import Classifier
from fedshot.models.split import SplitEncoder
from fedshot.telling import tell

# By encoder, its features (N, d) of each batch; by shared base, what it made of them. Weak: the next model that is
# loaded may get the address of a gone one.
Encoded = WeakKeyDictionary[nn.Module, list[Tensor]]


@dataclass(frozen=True)
class Outputs:
    """What K models say about N images."""

    features: Tensor  # (K, N, d) raw
    logits: Tensor  # (K, N, C)
    seen: Tensor | None = None  # (N, D) what a fixed look sees in the images, where a predictor has one


def outputs_of(models: Sequence[Classifier], images: Tensor, look: nn.Module | None = None) -> Outputs:
    """Raw features and logits of every model for prepared images, and what the look sees."""
    return ask(models, [images], WeakKeyDictionary(), look)[0]


@torch.no_grad()
def ask(
    models: Sequence[Classifier],
    batches: Sequence[Tensor],
    encoded: Encoded,
    look: nn.Module | None = None,
    about: str | None = None,
) -> list[Outputs]:
    """The outputs of all models for each batch of prepared images.

    Args:
        encoded: what encoders and bases have made of these batches; grows by what these models make of them. They are
            compared as whole objects.
        about: what is asked about, in words for who waits; None says nothing.
    """
    said: list[Outputs] = [] if len(models) else [Outputs(*2 * (x.new_empty(0, len(x), 0),)) for x in batches]
    for k, model in enumerate(models):
        if about is not None:
            tell(f"asking model {k + 1} of {len(models)} about {about}")
        known = encoded.get(model.encoder)
        for i, images in enumerate(batches):
            features = known[i] if known else _features(model, i, images, encoded)
            logits = model.logits(features)
            if k == 0:
                said.append(Outputs(*(part.new_empty(len(models), *part.shape) for part in (features, logits))))
            said[i].features[k] = features
            said[i].logits[k] = logits
        encoded[model.encoder] = [each.features[k] for each in said]
    return said if look is None else [replace(o, seen=look(x)) for o, x in zip(said, batches, strict=True)]


def _features(model: Classifier, number: int, images: Tensor, encoded: Encoded) -> Tensor:
    """Raw features of the batch of that number; the batches come in their order."""
    encoder = model.encoder
    if not isinstance(encoder, SplitEncoder):
        return model.features(images)
    made = encoded.setdefault(encoder.base, [])
    if len(made) == number:
        made.append(encoder.base(images))
    return encoder.after_base(made[number])
