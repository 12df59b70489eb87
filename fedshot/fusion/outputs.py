"""What K models say about images: each model is loaded once, and an encoder that models share encodes once."""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from fedshot.models import Classifier, Encoder

# By encoder, its features (N, d) of each batch. Weak: the next model that is loaded may get the address of a gone one.
Encoded = WeakKeyDictionary[Encoder, list[Tensor]]


@dataclass(frozen=True)
class Outputs:
    """What K models say about N images."""

    features: Tensor  # (K, N, d) raw
    logits: Tensor  # (K, N, C)


def outputs_of(models: Sequence[Classifier], images: Tensor) -> Outputs:
    """Raw features and logits of every model for prepared images."""
    return ask(models, [images], WeakKeyDictionary())[0]


@torch.no_grad()
def ask(models: Sequence[Classifier], batches: Sequence[Tensor], encoded: Encoded) -> list[Outputs]:
    """The outputs of all models for each batch of prepared images.

    Args:
        encoded: what encoders have said about these batches; grows by what these models say. Encoders are compared as
            whole objects: two that share only their first layers compute those twice.
    """
    said: list[Outputs] = []
    for k, model in enumerate(models):
        known = encoded.get(model.encoder)
        for i, images in enumerate(batches):
            features = known[i] if known else model.features(images)
            logits = model.head(features)
            if k == 0:
                said.append(Outputs(*(part.new_empty(len(models), *part.shape) for part in (features, logits))))
            said[i].features[k] = features
            said[i].logits[k] = logits
        encoded[model.encoder] = [each.features[k] for each in said]
    return said
