"""Rules that add up what the clients say about the classes."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from fedshot.errors import UserError
from fedshot.fusion.memory import KEPT_BYTES, Budget, OnDemand
from fedshot.fusion.outputs import Outputs
from fedshot.fusion.rule import Fusion, Member, Predictor, models_of
from fedshot.fusion.weights import CLIENT_WEIGHTS, ClientWeights, class_counts
from fedshot.local.familiarity import nearest_distance
from fedshot.models import unit
from fedshot.options import NotNegative
from fedshot.task import Task

_TINY = 1e-30  # keeps the logarithm of a mixture finite


def logits(weights: ClientWeights = "samples") -> Fusion:
    """The classic ensemble: the weighted mean of the clients' logits."""

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        w = CLIENT_WEIGHTS[weights](members)
        return Predictor(models_of(members), lambda out: torch.einsum("k,knc->nc", w.to(out.logits), out.logits))

    return Fusion("logits", fuse)


def probabilities(weights: ClientWeights = "samples") -> Fusion:
    """The weighted mean of the clients' class probabilities."""

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        w = CLIENT_WEIGHTS[weights](members)

        def combine(outputs: Outputs) -> Tensor:
            return mixture(outputs, w[:, None, None])

        return Predictor(models_of(members), combine)

    return Fusion("probabilities", fuse)


def class_weighted(power: NotNegative = 1.0) -> Fusion:
    """Probabilities weighted by who holds the class: score_y = sum_k (n_ky / sum_j n_jy) p_k(y|x)."""

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        w = class_counts(members, power)[:, None, :]  # (K, 1, C)
        return Predictor(models_of(members), lambda out: mixture(out, w))

    return Fusion("class_weighted", fuse)


def typicality(
    familiarity: Literal["rank", "softmax"] = "rank", sharpness: NotNegative = 2.0, class_power: NotNegative = 1.0
) -> Fusion:
    """Probabilities weighted by how familiar the image is to the client, and by who holds the class.

    d_k(x) is the distance to client k's nearest class mean (Mahalanobis, unit features). With `rank`, the client counts
    t_k(x)^sharpness, t_k the share of its held-out images that lie further out than x. With `softmax`, it counts
    softmax over clients of -sharpness/2 times the standardised log distance.
    score_y = sum_k familiarity_k(x) (n_ky^class_power / sum_j n_jy^class_power) p_k(y|x); class_power = 0 asks all
    holders alike.
    """

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        w = class_counts(members, class_power)[:, None, :]
        known = _familiar(members)

        def combine(outputs: Outputs) -> Tensor:
            each = zip(known, outputs.features, strict=True)
            if familiarity == "rank":
                t = torch.stack([k.rank(k.distance(unit(h))) for k, h in each]) ** sharpness  # (K, N)
            else:
                z = torch.stack([k.standardised(k.distance(unit(h))) for k, h in each])
                t = torch.softmax(-sharpness / 2 * z, dim=0)
            return mixture(outputs, t[:, :, None] * w.to(t))

        return Predictor(models_of(members), combine)

    return Fusion("typicality", fuse, needs=("weights", "familiarity"), held_out=True)


def mixture(outputs: Outputs, weights: Tensor) -> Tensor:
    """log sum_k w_k p_k(y|x), (N, C), for weights that broadcast to (K, N, C)."""
    p = outputs.logits.softmax(2)
    return (weights.to(p) * p).sum(0).clamp(min=_TINY).log()


def _familiar(members: Sequence[Member]) -> "Sequence[_Familiar]":
    """What each client knows. A covariance is large: as many as fit stay in memory, the others are read again."""
    device = next(members[0].model.parameters()).device
    budget = Budget(KEPT_BYTES[device.type])
    makers = []
    for member in members:
        make = partial(_Familiar.of, member, device)
        known = make()
        makers.append(budget.keep(known, known.bytes, make))
    return OnDemand(tuple(makers))


class _Familiar:
    """How far an image lies from what a client knows, against the images that the client held back."""

    def __init__(self, means: Tensor, held: Tensor, covariance: Tensor, distances: Tensor) -> None:
        self.means, self.held, self.covariance, self.distances = means, held, covariance, distances

    @classmethod
    def of(cls, member: Member, device: torch.device) -> "_Familiar":
        section = member.upload.section("familiarity")
        if len(section["distances"]) == 0:
            raise UserError("typicality needs held-out images of every client: train with --validation 0.1")
        held = torch.tensor(member.upload.header.class_counts, device=device) > 0
        tensors = {name: t.to(device) for name, t in section.items()}
        return cls(tensors["means"], held, tensors["covariance"], tensors["distances"])

    @property
    def bytes(self) -> int:
        return sum(t.nbytes for t in (self.means, self.held, self.covariance, self.distances))

    def distance(self, features: Tensor) -> Tensor:
        return nearest_distance(features, self.means, self.held, self.covariance)

    def rank(self, distances: Tensor) -> Tensor:
        """(1 + how many held-out images lie further out) / (1 + all), never 0."""
        further = len(self.distances) - torch.searchsorted(self.distances, distances, right=True)
        return (1 + further) / (1 + len(self.distances))

    def standardised(self, distances: Tensor) -> Tensor:
        log = self.distances.clamp(min=_TINY).log()
        return (distances.clamp(min=_TINY).log() - log.mean()) / log.std(correction=0).clamp(min=1e-3)
