"""A base that all clients share, and after it the stages and heads that each client keeps: base–head splitting.

How many stages are shared follows from how alike the clients' labels are. The planning note cites Liu et al. 2025
(FedBH) for the shared base, Chen et al. 2025 (FedCK) and Li et al. 2023 for comparing clients by their data or models.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedshot.errors import UserError
from fedshot.fusion.average import average_states
from fedshot.fusion.features import features
from fedshot.fusion.rule import Fusion, Member, Predictor, models_of
from fedshot.fusion.votes import class_weighted, logits, probabilities
from fedshot.fusion.weights import samples
from fedshot.local.weighting.entropy import label_entropy
from fedshot.models import Classifier
from fedshot.models.copies import frozen_copy
from fedshot.models.split import Base, SplitEncoder
from fedshot.task import Task

Shared = Literal["similarity", "least"] | Annotated[int, Field(ge=0)]

VOTES: dict[str, Callable[[], Fusion]] = {
    "features": features,
    "logits": logits,
    "probabilities": probabilities,
    "class_weighted": class_weighted,
}


def shared_base(
    shared: Shared = "similarity", vote: Literal["features", "logits", "probabilities", "class_weighted"] = "features"
) -> Fusion:
    """The first stages averaged by samples into one base, the later ones and the heads kept apart; the K models vote.

    `shared` is how many stages; or it follows from the class counts: from the `similarity` of the clients, or as the
    `least` that a client would choose alone. 0 is the vote without any sharing.
    """
    rule = VOTES[vote]()

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        first = members[0].model
        _check(first, shared)
        stages = _settled(shared, members, len(first.encoder.in_order()))
        if stages == 0:
            return rule.fuse(members, task)
        base = _averaged(members, stages)
        split = [Member(m.upload, partial(_on_base, base, m)) for m in members]
        return replace(rule.fuse(split, task), personal=models_of(split))

    return Fusion("shared_base", fuse, check=partial(_check, shared=shared))


def _check(model: Classifier, shared: Shared) -> None:
    if model.upright() is not model:
        raise UserError("shared_base: a model that looks at every turn of an image has no base to share")
    stages = len(model.encoder.in_order())
    if isinstance(shared, int) and shared > stages:
        raise UserError(
            f"shared_base: {shared} stages cannot be shared, the encoder has {stages}: choose shared=0 to {stages}"
        )


def _settled(shared: Shared, members: Sequence[Member], stages: int) -> int:
    counts = [m.upload.header.class_counts for m in members]
    if shared == "similarity":
        return stages_of_alike(torch.tensor(counts), stages)
    return min(stages_of_one(mine, stages) for mine in counts) if shared == "least" else shared


def _averaged(members: Sequence[Member], stages: int) -> Base:
    """The first stages of all members as one, their BatchNorm statistics included."""
    encoder = frozen_copy(members[0].model.encoder)
    names = encoder.entries(stages)
    every = (m.model.encoder.state_dict() for m in members)
    mean = average_states(({name: state[name] for name in names} for state in every), samples(members))
    encoder.load_state_dict({**encoder.state_dict(), **mean})
    return Base(encoder, stages)


def _on_base(base: Base, member: Member) -> Classifier:
    """A member's model with the base in place of its first stages."""
    model = member.model
    return Classifier(SplitEncoder(base, model.encoder), model.head)


def stages_of_alike(class_counts: Tensor, stages: int) -> int:
    """How many of the stages clients with these labels, (K, C), share: s = round(S * similarity)."""
    return _rounded(stages * label_similarity(class_counts))


def stages_of_one(class_counts: Sequence[int], stages: int) -> int:
    """How many stages a client shares that knows its own labels alone: s_k = round(S * H_k / log2 C).

    H_k / log2 C is 1 for a client that holds all classes alike, as every other client might, and 0 for a single class.

    >>> stages_of_one([4, 4, 0, 0], 5), stages_of_one([1, 1, 1, 1], 5), stages_of_one([9, 0, 0, 0], 5)
    (3, 5, 0)
    """
    most = math.log2(len(class_counts))
    return _rounded(stages * (label_entropy(class_counts) / most if most else 1.0))


def label_similarity(class_counts: Tensor) -> float:
    """How alike the label distributions p_k of clients are: the mean of 1 - JS(p_j, p_k) over all pairs, in [0, 1].

    JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2 in bits (Lin 1991): 0 for the same distribution, 1 for no class in
    common. Clients of fewer than two images cannot train and are left out; one client is like itself.

    Args:
        class_counts: (K, C).

    >>> label_similarity(torch.tensor([[8, 8, 0], [3, 3, 0]])), label_similarity(torch.tensor([[9, 0], [0, 5]]))
    (1.0, 0.0)
    """
    counts = class_counts.cpu().double()
    counts = counts[counts.sum(1) >= 2]
    p = counts / counts.sum(1, keepdim=True)  # (K, C)
    entropy = _bits(p)
    pairs = len(p) * (len(p) - 1) / 2
    apart = sum(
        float((_bits((p[:k] + p[k]) / 2) - (entropy[:k] + entropy[k]) / 2).sum())  # one row at a time: K can be large
        for k in range(1, len(p))
    )
    return min(1.0, max(0.0, 1 - apart / pairs)) if pairs else 1.0


def _bits(p: Tensor) -> Tensor:
    """The entropy of each row, (K,)."""
    return torch.special.entr(p).sum(1) / math.log(2)


def _rounded(value: float) -> int:
    """To the nearest integer, a half upwards."""
    return math.floor(value + 0.5)
