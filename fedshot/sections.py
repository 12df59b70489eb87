"""What an upload can carry beside the weights: statistics of a client's features, each section a value.

A fusion rule names the sections that it reads. A method whose clients send something of their own adds a Section to its
`statistics`; making, counting, checking and storing it need no further code.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedshot.local.familiarity import class_means, familiarity, nearest_distance, shrunk_root
from fedshot.models import unit

Shape = tuple[int | None, ...]  # None for a length that is free, at most the number of images


@dataclass(frozen=True)
class Evidence:
    """What a client knows after training: raw features of its own images, without augmentation."""

    features: Tensor  # (N, d) of the training images
    labels: Tensor  # (N,)
    held_out: Tensor | None  # (M, d) of the validation images
    classes: int


@dataclass(frozen=True)
class Section:
    """A named part of an upload.

    `make` returns its float32 tensors, or None for a client that cannot have them. `layout` gives their shapes from the
    width of a feature and the number of classes. `complaint` says what is wrong with received values, given which
    classes the client holds, (C,) bool; None if nothing is.
    """

    make: Callable[[Evidence], dict[str, Tensor] | None]
    layout: Callable[[int, int], dict[str, Shape]]
    complaint: Callable[[Mapping[str, Tensor], Tensor], str | None] = lambda content, held: None


def _moments(evidence: Evidence) -> dict[str, Tensor]:
    return {"mean": evidence.features.mean(0), "std": evidence.features.std(0, correction=0)}


def _class_means(evidence: Evidence) -> dict[str, Tensor]:
    return {"means": class_means(evidence.features, evidence.labels, evidence.classes)}


def _familiarity(evidence: Evidence) -> dict[str, Tensor] | None:
    # distances of images that the model was trained on say nothing about new ones
    if evidence.held_out is None:
        return None
    return familiarity(unit(evidence.features), evidence.labels, unit(evidence.held_out), evidence.classes)


def _negative_deviation(content: Mapping[str, Tensor], held: Tensor) -> str | None:
    return "std is negative" if (content["std"] < 0).any() else None


def _impossible_familiarity(content: Mapping[str, Tensor], held: Tensor) -> str | None:
    means, covariance, distances = content["means"], content["covariance"], content["distances"]
    if (distances < 0).any() or (distances.diff() < 0).any():
        return "distances are not ascending from 0 or more"
    symmetric = torch.allclose(covariance, covariance.T, rtol=1e-3, atol=1e-6)
    usable = shrunk_root(covariance)[1] and nearest_distance(means[held], means, held, covariance).isfinite().all()
    return None if symmetric and usable else "covariance is not the covariance of anything"


STATISTICS: dict[str, Section] = {
    "moments": Section(_moments, lambda d, c: {"mean": (d,), "std": (d,)}, _negative_deviation),
    "class_means": Section(_class_means, lambda d, c: {"means": (c, d)}),
    "familiarity": Section(
        _familiarity,
        lambda d, c: {"means": (c, d), "covariance": (d, d), "distances": (None,)},
        _impossible_familiarity,
    ),
}
