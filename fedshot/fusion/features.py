"""Rules that add up the clients' features and classify the sum by the mean head: FAFI's server and its relatives."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from fedshot.fusion.average import check_head, mean_head
from fedshot.fusion.rule import Fuse, Fusion, Member, Outputs, Predictor, outputs_of
from fedshot.fusion.weights import CLIENT_WEIGHTS, ClientWeights, PrototypeWeights
from fedshot.models import unit
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
        head, w = mean_head(members, prototypes), CLIENT_WEIGHTS[weights](members)

        def combine(outputs: Outputs) -> Tensor:
            h = outputs.features if scale == "raw" else unit(outputs.features)
            return head(torch.einsum("k,knd->nd", w.to(h), h))

        return Predictor(models_of(members), combine)

    return _by_mean_head("features", fuse, prototypes)


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
        reference = unit(outputs_of(models, noise).features)  # (K, draws, d)

        def combine(outputs: Outputs) -> Tensor:
            similarity = torch.einsum("knd,kmd->knm", unit(outputs.features), reference)
            u = shared((1 - similarity).mean(2))  # (K, N)
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
    """As `moments`, but standardised by the test images themselves: transductive, FedSRA's published form."""

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        head, w = mean_head(members, prototypes), CLIENT_WEIGHTS[weights](members)

        def combine(outputs: Outputs) -> Tensor:
            h = outputs.features
            return _standardised_sum(h, h.mean(1, keepdim=True), h.std(1, keepdim=True, correction=0), w, head)

        return Predictor(models_of(members), combine, inductive=False)

    return replace(_by_mean_head("batch_moments", fuse, prototypes), inductive=False)


def nearest_prototype(weights: ClientWeights = "samples") -> Fusion:
    """FedProto's rule: the class whose mean feature lies nearest to the summed feature.

    m_c = sum_k n_kc m_kc / sum_k n_kc over the clients that hold c; score_c = -||h - m_c||^2, h = sum_k w_k h_k.
    """

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        means = torch.stack([m.upload.section("class_means")["means"] for m in members])  # (K, C, d)
        counts = torch.tensor([m.upload.header.class_counts for m in members], dtype=torch.float32)
        total = counts.sum(0)
        prototypes = (counts[:, :, None] * means).sum(0) / total.clamp(min=1)[:, None]
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


def _by_mean_head(name: str, fuse: Fuse, prototypes: PrototypeWeights) -> Fusion:
    """A rule that classifies by the mean head, with what that asks of models and clients."""
    return Fusion(name, fuse, held_out=prototypes == "reliability", check=partial(check_head, by=prototypes))


def _standardised_sum(h: Tensor, mean: Tensor, std: Tensor, weights: Tensor, head: nn.Module) -> Tensor:
    z = (h - mean.to(h)) / std.to(h).clamp(min=1e-6)
    return head(torch.einsum("k,knd->nd", weights.to(h), z))


def models_of(members: Sequence[Member]) -> tuple:
    return tuple(m.model for m in members)
