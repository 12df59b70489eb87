"""Guesses who was in a client's training images, from its upload alone: one score for each image, high for "it was".

Every attack is what a curious server can do without training anything: it has the upload's model and statistics, and
images of its own to compare with.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedshot.local.pixels import grid_of


@dataclass(frozen=True)
class Seen:
    """What the upload's model makes of some images."""

    images: Tensor  # (N, channels, H, W) uint8
    labels: Tensor  # (N,)
    features: Tensor  # (N, d)
    logits: Tensor  # (N, C)


@dataclass(frozen=True)
class Evidence:
    """What an attack reads beside the image in question: the upload's sections, and images of the attacker's own."""

    sections: Mapping[str, Mapping[str, Tensor]]
    reference: Seen  # that nobody was trained on


Attack = Callable[[Seen, Evidence], Tensor]  # scores (N,)


def loss_threshold(seen: Seen, evidence: Evidence) -> Tensor:
    """Minus the loss, Yeom et al. 2018 (arXiv:1709.01604): what a model was trained on it classifies more surely."""
    return -functional.cross_entropy(seen.logits.double(), seen.labels, reduction="none")


def likelihood(seen: Seen, evidence: Evidence) -> Tensor:
    """How far beyond images of its class that nobody trained on: (φ - mean_c) / std_c with φ = log(p_y / (1 - p_y)).

    The offline attack of LiRA, Carlini et al. 2022 (arXiv:2112.03570), with the model's answers to other images of the
    class in place of other models' answers to this image: no shadow model is trained. A class with fewer than two
    images to compare with is compared with all.
    """
    phi, usual = logit_confidence(seen), logit_confidence(evidence.reference)
    classes, score = evidence.reference.labels, torch.empty_like(phi)
    for label in seen.labels.unique():
        alike = usual[classes == label]
        alike = alike if len(alike) >= 2 else usual
        mine = seen.labels == label
        score[mine] = (phi[mine] - alike.mean()) / alike.std().clamp(min=1e-6)
    return score


def logit_confidence(seen: Seen) -> Tensor:
    """log(p_y / (1 - p_y)), (N,) double, without rounding of p_y to 1.

    >>> one = torch.zeros(1)
    >>> logit_confidence(Seen(one, torch.tensor([0]), one, torch.tensor([[0.0, 0.0]])))
    tensor([0.], dtype=torch.float64)
    """
    logits = seen.logits.double()
    own = logits.gather(1, seen.labels[:, None])[:, 0]
    others = logits.scatter(1, seen.labels[:, None], -torch.inf).logsumexp(1)
    return own - others


def near_class_mean(seen: Seen, evidence: Evidence) -> Tensor:
    """Minus the distance to the uploaded mean feature of its class: the mean was made of the training images."""
    means = evidence.sections["class_means"]["means"].to(seen.features)
    return -(seen.features - means[seen.labels]).norm(dim=1).double()


def like_moments(seen: Seen, evidence: Evidence) -> Tensor:
    """Minus the standardised distance to the uploaded mean of all features."""
    mean, std = (evidence.sections["moments"][name].to(seen.features) for name in ("mean", "std"))
    return -((seen.features - mean) / std.clamp(min=1e-6)).square().mean(1).double()


def near_class_picture(seen: Seen, evidence: Evidence) -> Tensor:
    """Minus the distance of the coarse image to the uploaded mean picture of its class."""
    _, channels, height, width = seen.images.shape
    rows, columns = grid_of((channels, height, width))[1:]
    coarse = functional.adaptive_avg_pool2d(seen.images.float() / 255, (rows, columns))
    pictures = evidence.sections["class_pixels"]["mean"].to(coarse)
    return -(coarse - pictures[seen.labels]).flatten(1).norm(dim=1).double()


NEEDS_REFERENCE = ("likelihood",)

# by name, with the section that each reads
ATTACKS: dict[str, tuple[str, Attack]] = {
    "loss": ("weights", loss_threshold),
    "likelihood": ("weights", likelihood),
    "class means": ("class_means", near_class_mean),
    "moments": ("moments", like_moments),
    "class pictures": ("class_pixels", near_class_picture),
}
