"""What an upload can carry beside the weights: statistics of a client's features, each section a value.

A fusion rule names the sections that it reads. A method whose clients send something of their own adds a Section to its
`statistics`; making, counting, checking and storing it need no further code.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from fedshot.local.common import common_statistics
from fedshot.local.confidence import class_confidence, held_out_error, temperature
from fedshot.local.familiarity import (
    class_counts,
    class_means,
    familiarity,
    nearest_distance,
    shrunk_root,
    turned_familiarity,
)
from fedshot.local.pixels import class_pixels, grid_of
from fedshot.models import unit
from fedshot.models.common import common_width
from fedshot.models.look import common_look
from fedshot.models.turned import turns_of
from fedshot.symmetric import unpack_symmetric
from fedshot.task import Task

Shape = tuple[int | None, ...]  # None for a length that is free, at most the number of images


@dataclass(frozen=True)
class Sizes:
    """What the shapes of all sections follow from."""

    width: int  # d, of a feature
    classes: int
    image: tuple[int, int, int]  # channels, height, width
    weights: int = 0  # numbers in a model's state


@dataclass(frozen=True)
class Evidence:
    """What a client knows after training: its own images, and their raw features without augmentation."""

    features: Tensor  # (N, d) of the training images
    labels: Tensor  # (N,)
    held_out: Tensor | None  # (M, d) of the validation images
    sizes: Sizes
    logits: Tensor  # (N, C) of the training images
    held_out_logits: Tensor | None  # (M, C)
    held_out_labels: Tensor | None  # (M,)
    images: Tensor  # (N, channels, H, W) uint8, those of training
    task: Task

    @property
    def classes(self) -> int:
        return self.sizes.classes

    @cached_property
    def held(self) -> Tensor:
        """Which classes the client has images of, (C,) bool."""
        return class_counts(self.labels, self.classes) > 0

    @cached_property
    def class_means(self) -> Tensor:
        """Mean raw feature of each class, (C, d)."""
        return class_means(self.features, self.labels, self.classes)


@dataclass(frozen=True)
class Section:
    """A named part of an upload.

    `make` returns its tensors, or None for a client that cannot have them. `layout` gives their shapes, `types` their
    types where they are not float32.
    `complaint` says what is wrong with received values, given which classes the client holds, (C,) bool; None if
    nothing is.
    """

    make: Callable[[Evidence], dict[str, Tensor] | None]
    layout: Callable[[Sizes], dict[str, Shape]]
    complaint: Callable[[Mapping[str, Tensor], Tensor], str | None] = lambda content, held: None
    types: Mapping[str, torch.dtype] = field(default_factory=dict)


def _moments(evidence: Evidence) -> dict[str, Tensor]:
    return {"mean": evidence.features.mean(0), "std": evidence.features.std(0, correction=0)}


def _class_means(evidence: Evidence) -> dict[str, Tensor]:
    return {"means": evidence.class_means}


def _familiarity(evidence: Evidence) -> dict[str, Tensor] | None:
    # distances of images that the model was trained on say nothing about new ones
    if evidence.held_out is None:
        return None
    return familiarity(unit(evidence.features), evidence.labels, unit(evidence.held_out), evidence.classes)


def _class_confidence(evidence: Evidence) -> dict[str, Tensor]:
    logits, labels = evidence.held_out_logits, evidence.held_out_labels
    if logits is None or labels is None:
        logits, labels = evidence.logits, evidence.labels
    return {"confidence": class_confidence(logits, labels, evidence.held)}


def _class_pixels(evidence: Evidence) -> dict[str, Tensor]:
    return class_pixels(evidence.images, evidence.labels, evidence.classes)


def _class_pixels_layout(sizes: Sizes) -> dict[str, Shape]:
    shape = (sizes.classes, *grid_of(sizes.image))
    return {"mean": shape, "std": shape}


def _negative_deviation(content: Mapping[str, Tensor], held: Tensor) -> str | None:
    return "std is negative" if (content["std"] < 0).any() else None


def _impossible_pixels(content: Mapping[str, Tensor], held: Tensor) -> str | None:
    if (content["mean"] < 0).any() or (content["mean"] > 1).any():
        return "mean lies outside 0 … 1"
    return _negative_deviation(content, held)


def _impossible_familiarity(content: Mapping[str, Tensor], held: Tensor) -> str | None:
    means, covariance, distances = content["means"], content["covariance"], content["distances"]
    if (distances < 0).any() or (distances.diff() < 0).any():
        return "distances are not ascending from 0 or more"
    symmetric = torch.allclose(covariance, covariance.T, rtol=1e-3, atol=1e-6)
    usable = shrunk_root(covariance)[1] and nearest_distance(means[held], means, held, covariance).isfinite().all()
    return None if symmetric and usable else "covariance is not the covariance of anything"


def _impossible_confidence(content: Mapping[str, Tensor], held: Tensor) -> str | None:
    confidence = content["confidence"]
    if (confidence < 0).any() or (confidence > 1).any():
        return "confidence is not between 0 and 1"
    return "confidence is above 0 for a class that the client does not hold" if confidence[~held].any() else None


STATISTICS: dict[str, Section] = {
    "moments": Section(_moments, lambda s: {"mean": (s.width,), "std": (s.width,)}, _negative_deviation),
    "class_means": Section(_class_means, lambda s: {"means": (s.classes, s.width)}),
    "class_confidence": Section(_class_confidence, lambda s: {"confidence": (s.classes,)}, _impossible_confidence),
    "familiarity": Section(
        _familiarity,
        lambda s: {"means": (s.classes, s.width), "covariance": (s.width, s.width), "distances": (None,)},
        _impossible_familiarity,
    ),
    "class_pixels": Section(_class_pixels, _class_pixels_layout, _impossible_pixels),
}


def by_turn(features: Tensor, turns: int) -> Tensor:
    """Features of all turns side by side, (N, T · d), as those of each, (N, T, d)."""
    return features.unflatten(1, (turns, -1))


def _turned_familiarity(evidence: Evidence) -> dict[str, Tensor]:
    turns = turns_of(evidence.sizes.image)
    held_back = None if evidence.held_out is None else by_turn(evidence.held_out, turns)
    seen = by_turn(evidence.features, turns)
    return turned_familiarity(seen, evidence.labels, held_back, evidence.held_out_labels, evidence.classes)


def _turned_familiarity_layout(sizes: Sizes) -> dict[str, Shape]:
    turns = turns_of(sizes.image)
    width = sizes.width // turns
    return {"means": (sizes.classes, turns, width), "covariance": (width * (width + 1) // 2,), "spread": (3,)}


def _impossible_turned_familiarity(content: Mapping[str, Tensor], held: Tensor) -> str | None:
    if content["spread"][1] <= 0:
        return "spread has a deviation of 0 or less"
    covariance = unpack_symmetric(content["covariance"], content["means"].shape[2])
    return None if shrunk_root(covariance)[1] else "covariance is not the covariance of anything"


def _reliability(evidence: Evidence) -> dict[str, Tensor]:
    logits, labels, held = evidence.held_out_logits, evidence.held_out_labels, evidence.held
    if logits is None or labels is None:  # nothing was held back, and nothing is known
        logits, labels = evidence.features.new_zeros(0, evidence.classes), evidence.labels[:0]
    return {"temperature": temperature(logits, labels, held), "error": held_out_error(logits, labels, held)}


def _impossible_reliability(content: Mapping[str, Tensor], held: Tensor) -> str | None:
    if not content["temperature"] > 0:
        return "temperature is 0 or less"
    return None if 0 <= content["error"] <= 1 else "error is not between 0 and 1"


def _common(evidence: Evidence) -> dict[str, Tensor]:
    look = common_look(evidence.task, _common_width(evidence.sizes), evidence.images.device)
    return common_statistics(evidence.images, evidence.labels, evidence.classes, look)


def _common_width(sizes: Sizes) -> int:
    """D, such that weights in half precision and all that routing needs take no more than FAFI's weights in full."""
    turns = turns_of(sizes.image)
    width = sizes.width // turns
    fafi = sizes.weights - (turns - 1) * sizes.classes * width  # which has a prototype for each class alone
    familiarity = 2 * sizes.classes * sizes.width + width**2
    return common_width(4 * fafi - 2 * sizes.weights - familiarity, sizes.classes)


def _common_layout(sizes: Sizes) -> dict[str, Shape]:
    width = _common_width(sizes)
    return {"centre": (width,), "means": (sizes.classes, width), "root": (width * (width + 1) // 2,)}


def _impossible_common(content: Mapping[str, Tensor], held: Tensor) -> str | None:
    width = content["means"].shape[1]
    diagonal = torch.arange(1, width + 1).cumsum(0) - 1  # where a packed triangle has its diagonal
    return "root has a negative entry on its diagonal" if (content["root"][diagonal] < 0).any() else None


# Of clients whose models look at every turn of an image, for a server that must know whom to ask. The covariance of
# `familiarity` would be that of all turns at once, larger than the model.
ROUTING: dict[str, Section] = {
    **{name: section for name, section in STATISTICS.items() if name != "familiarity"},
    "turned_familiarity": Section(
        _turned_familiarity,
        _turned_familiarity_layout,
        _impossible_turned_familiarity,
        types={"means": torch.float16, "covariance": torch.float16},
    ),
    "reliability": Section(_reliability, lambda s: {"temperature": (1,), "error": (1,)}, _impossible_reliability),
    "common": Section(
        _common, _common_layout, _impossible_common, types={"means": torch.float16, "root": torch.float16}
    ),
}
