"""Rules that add up the clients' features and classify the sum by the mean head: FAFI's server and its relatives."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from fedshot.errors import UserError
from fedshot.fusion.average import average_states, check_class_rows, check_head, mean_head, weighted_head
from fedshot.fusion.outputs import Outputs
from fedshot.fusion.rule import Combine, Fuse, Fusion, Member, Predictor, models_of, transductive
from fedshot.fusion.weights import CLIENT_WEIGHTS, ClientWeights, PrototypeWeights, class_counts, row_votes
from fedshot.models import unit
from fedshot.options import NotNegative
from fedshot.seeds import stream
from fedshot.spec import Positive
from fedshot.task import Task


def features(
    weights: ClientWeights = "samples",
    scale: Literal["raw", "unit"] = "raw",
    prototypes: PrototypeWeights = "uniform",
) -> Fusion:
    """FAFI's server: the weighted sum of features against the mean prototypes, argmax_c unit(sum_k w_k h_k) p_c."""

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        return _feature_sum(members, mean_head(members, prototypes), weights, scale)

    return _by_mean_head("features", fuse, prototypes)


def dynamic_prototypes(
    samples: NotNegative = 0.0,
    counts: NotNegative = 1.0,
    reliability: NotNegative = 0.0,
    confidence: NotNegative = 1.0,
    unseen: bool = False,
) -> Fusion:
    """FAFI's server with prototypes weighted row by row: by n_k^samples n_kc^counts r_k^reliability q_kc^confidence.

    r_k is the accuracy of client k on images that it held back, q_kc the mean probability that it gives class c on
    images of c. A client without images of a class has no vote for its row, unless `unseen`.
    """
    if unseen and (counts or confidence):
        raise UserError(
            "dynamic_prototypes: unseen=true does nothing where class counts or confidences, 0 for an unseen class, "
            "weigh: add counts=0 and confidence=0"
        )

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        by_row = row_votes(members, samples, counts, reliability, confidence, unseen)
        return _feature_sum(members, weighted_head(members, by_row), "samples", "raw")

    needs = ("weights", "class_confidence") if confidence else ("weights",)
    return Fusion("dynamic_prototypes", fuse, needs, held_out=reliability > 0, check=check_class_rows)


def noise_informed(draws: Positive = 64, prototypes: PrototypeWeights = "uniform") -> Fusion:
    """FAFI's informative feature fusion as intended: features weighted by how unlike noise an image looks to a client.

    u_k(x) = mean over noise images of 1 - cos(h_k(x), h_k(noise)); F = sum_k u_k(x) h_k(x), one weight for each client
    and image. The paper draws one noise image for each x; the mean over a fixed set does not depend on the batch.
    """
    return _against_noise("noise_informed", draws, prototypes, lambda u: u)


def released(draws: Positive = 64, prototypes: PrototypeWeights = "uniform") -> Fusion:
    """The informative fusion as the published code has it: weights averaged over clients first, which cancels them.

    Every client gets the same weight, so it equals a plain sum of features. Kept to reproduce published figures.
    """
    return _against_noise("released", draws, prototypes, lambda u: u.mean(0, keepdim=True).expand_as(u))


def _against_noise(name: str, draws: int, prototypes: PrototypeWeights, shared: Callable[[Tensor], Tensor]) -> Fusion:
    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        models, head = models_of(members), mean_head(members, prototypes)
        device = next(models[0].parameters()).device
        noise = torch.randn(draws, *task.shape, generator=stream(task.seed, "noise")).to(device)
        # the mean of cosines to noise is one product with the mean of unit noise features
        with torch.no_grad():
            reference = torch.stack([unit(model.features(noise)).mean(0) for model in models])  # (K, d)

        def combine(outputs: Outputs) -> Tensor:
            u = shared(1 - torch.einsum("knd,kd->kn", unit(outputs.features), reference))  # (K, N)
            return head(torch.einsum("kn,knd->nd", u, outputs.features))

        return Predictor(models, combine)

    return _by_mean_head(name, fuse, prototypes)


def moments(weights: ClientWeights = "sqrt_samples", prototypes: PrototypeWeights = "uniform") -> Fusion:
    """Features standardised by the moments that each client uploaded, then summed (FedSRA's inductive form).

    z_k = (h_k - mean_k) / std_k over the client's training images; F = sum_k w_k z_k, by the mean head.
    """

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        sections = [m.upload.section("moments") for m in members]
        mean = torch.stack([s["mean"] for s in sections])[:, None]  # (K, 1, d)
        std = torch.stack([s["std"] for s in sections])[:, None]
        head, w = mean_head(members, prototypes), CLIENT_WEIGHTS[weights](members)

        def combine(outputs: Outputs) -> Tensor:
            return _standardised_sum(outputs.features, mean, std, w, head)

        return Predictor(models_of(members), combine)

    return replace(_by_mean_head("moments", fuse, prototypes), needs=("weights", "moments"))


def batch_moments(weights: ClientWeights = "sqrt_samples", prototypes: PrototypeWeights = "uniform") -> Fusion:
    """As `moments`, but standardised by the test images themselves: transductive, FedSRA's published form.

    Test images that are too many to hold what all models say about them are encoded twice: for moments, for scores.
    """

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        head, w = mean_head(members, prototypes), CLIENT_WEIGHTS[weights](members)

        def study(parts: Iterable[Outputs]) -> Combine:
            mean, std = running_moments(part.features for part in parts)
            return lambda outputs: _standardised_sum(outputs.features, mean, std, w, head)

        return transductive(models_of(members), study)

    return replace(_by_mean_head("batch_moments", fuse, prototypes), inductive=False)


def nearest_prototype(weights: ClientWeights = "samples") -> Fusion:
    """FedProto's rule: the class whose mean feature lies nearest to the summed feature.

    m_c = sum_k n_kc m_kc / sum_k n_kc over the clients that hold c; score_c = -||h - m_c||^2, h = sum_k w_k h_k.
    """

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        means = (m.upload.section("class_means") for m in members)  # (C, d) each
        total = torch.tensor([m.upload.header.class_counts for m in members]).sum(0)
        prototypes = average_states(means, class_counts(members))["means"]
        w = CLIENT_WEIGHTS[weights](members)

        def combine(outputs: Outputs) -> Tensor:
            h = torch.einsum("k,knd->nd", w.to(outputs.features), outputs.features)
            scores = -torch.cdist(h, prototypes.to(h)).square()
            # a class that nobody holds has no mean; it must not win, and -inf would make its NLL infinite
            nobody = (total == 0).to(h.device)
            least = scores.masked_fill(nobody, torch.inf).amin(1, keepdim=True) - 100
            return torch.where(nobody, least, scores)

        return Predictor(models_of(members), combine)

    return Fusion("nearest_prototype", fuse, needs=("weights", "class_means"))


def _feature_sum(
    members: Sequence[Member], head: nn.Module, weights: ClientWeights, scale: Literal["raw", "unit"]
) -> Predictor:
    w = CLIENT_WEIGHTS[weights](members)

    def combine(outputs: Outputs) -> Tensor:
        h = outputs.features if scale == "raw" else unit(outputs.features)
        return head(torch.einsum("k,knd->nd", w.to(h), h))

    return Predictor(models_of(members), combine)


def _by_mean_head(name: str, fuse: Fuse, prototypes: PrototypeWeights) -> Fusion:
    """A rule that classifies by the mean head, with what that asks of models and clients."""
    return Fusion(name, fuse, held_out=prototypes == "reliability", check=partial(check_head, by=prototypes))


def _standardised_sum(h: Tensor, mean: Tensor, std: Tensor, weights: Tensor, head: nn.Module) -> Tensor:
    z = (h - mean.to(h)) / std.to(h).clamp(min=1e-6)
    return head(torch.einsum("k,knd->nd", weights.to(h), z))


def running_moments(parts: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and deviation (K, 1, d) over the images of all parts (K, N, d), by Chan et al. 1979's update in double.

    >>> running_moments([torch.tensor([[[1.0]]]), torch.tensor([[[2.0], [6.0]]])])
    (tensor([[[3.]]], dtype=torch.float64), tensor([[[2.1602]]], dtype=torch.float64))
    """
    seen, mean, squares = 0, torch.zeros(()), torch.zeros(())  # squares: sum of squared distances to the mean
    for part in parts:
        new = part.shape[1]
        variance, centre = torch.var_mean(part, dim=1, keepdim=True, correction=0)
        away = centre.double() - mean.to(centre.device)
        mean = mean.to(centre.device) + away * (new / (seen + new))
        squares = squares.to(centre.device) + variance.double() * new + away.square() * (seen * new / (seen + new))
        seen += new
    return mean, (squares / seen).sqrt()
