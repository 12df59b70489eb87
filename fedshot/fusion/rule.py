"""The contract of a fusion rule: uploads in, a predictor out, nothing flows back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedshot.models import Classifier
from fedshot.task import Task
from fedshot.upload import Upload


@dataclass(frozen=True)
class Member:
    """A client as the server sees it: what it uploaded, and its model, frozen in evaluation mode."""

    upload: Upload
    model: Classifier


@dataclass(frozen=True)
class Outputs:
    """What K models say about N images."""

    features: Tensor  # (K, N, d) raw
    logits: Tensor  # (K, N, C)


@dataclass(frozen=True)
class Predictor:
    """Maps images to class scores (N, C) whose softmax over classes is the predicted distribution.

    A transductive predictor reads statistics of the test images; tables never mix it with the others silently.
    """

    models: tuple[Classifier, ...]
    combine: Callable[[Outputs], Tensor]
    inductive: bool = True

    def __call__(self, images: Tensor) -> Tensor:
        """Prepared images (N, channels, H, W) to scores (N, C)."""
        return self.combine(outputs_of(self.models, images))


Fuse = Callable[[Sequence[Member], Task], Predictor]


@dataclass(frozen=True)
class Fusion:
    """A rule: a pure function of what was uploaded.

    `needs` names the sections of an upload that it reads; `held_out` asks for clients that hold back validation images.
    `check` raises a UserError for a model that the rule cannot fuse, before any client trains it.
    """

    name: str
    fuse: Fuse
    needs: tuple[str, ...] = ("weights",)
    inductive: bool = True
    held_out: bool = False
    check: Callable[[Classifier], object] = lambda model: None


@torch.no_grad()
def outputs_of(models: Sequence[Classifier], images: Tensor) -> Outputs:
    """Raw features and logits of every model for prepared images."""
    features = [model.features(images) for model in models]
    logits = [model.head(f) for model, f in zip(models, features, strict=True)]
    return Outputs(torch.stack(features), torch.stack(logits))
