"""How much each client counts: for a whole vote (K,), or class by class (K, C). Columns add up to 1."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from fedshot.errors import UserError
from fedshot.fusion.rule import Member

ClientWeights = Literal["samples", "sqrt_samples", "uniform"]
PrototypeWeights = Literal["uniform", "samples", "class_counts", "reliability"]


def samples(members: Sequence[Member]) -> Tensor:
    """n_k / n."""
    n = torch.tensor([float(m.upload.header.samples) for m in members])
    return n / n.sum()


def sqrt_samples(members: Sequence[Member]) -> Tensor:
    """sqrt(n_k), made to add up to 1."""
    root = samples(members).sqrt()
    return root / root.sum()


def uniform(members: Sequence[Member]) -> Tensor:
    """1 / K."""
    return torch.full((len(members),), 1 / len(members))


def reliability(members: Sequence[Member]) -> Tensor:
    """Proportional to the accuracy that each client reached on the images that it held back.

    A client too small to hold back an image has shown nothing, and has no say.
    """
    accuracy = _validation_accuracy(members)
    return accuracy / accuracy.sum() if accuracy.sum() > 0 else uniform(members)


def _validation_accuracy(members: Sequence[Member]) -> Tensor:
    scores = [m.upload.header.validation_accuracy for m in members]
    if all(score is None for score in scores):
        raise UserError("reliability needs clients that held back validation images: train with --validation 0.1")
    return torch.tensor([float(score or 0.0) for score in scores])


def class_counts(members: Sequence[Member], power: float = 1.0) -> Tensor:
    """n_ky^power / sum_j n_jy^power, (K, C). A class that nobody holds is shared evenly."""
    n = torch.tensor([m.upload.header.class_counts for m in members], dtype=torch.float32)
    # 0 ** 0 would count a client that never saw the class
    raised = torch.where(n > 0, n**power, 0.0)
    total = raised.sum(0)
    return torch.where(total > 0, raised / total.clamp(min=1e-12), 1 / len(members))


def row_votes(
    members: Sequence[Member], samples: float, counts: float, reliability: float, confidence: float, unseen: bool
) -> Tensor:
    """n_k^samples n_kc^counts r_k^reliability q_kc^confidence, made to add up to 1 over clients, (K, C).

    n_k are a client's images, n_kc those of class c, r_k its accuracy on images that it held back, q_kc the section
    `class_confidence`; 0^0 = 1. Unless `unseen`, a client without images of c has no vote. Where nobody has one, all
    count alike.
    """
    n = torch.tensor([m.upload.header.class_counts for m in members], dtype=torch.float64)  # (K, C)
    log_votes = torch.xlogy(counts, n) + torch.xlogy(samples, n.sum(1, keepdim=True))
    if reliability:
        log_votes += torch.xlogy(reliability, _validation_accuracy(members).double())[:, None]
    if confidence:
        q = torch.stack([m.upload.section("class_confidence")["confidence"] for m in members])
        log_votes += torch.xlogy(confidence, q.double())
    if not unseen:
        log_votes = log_votes.masked_fill(n == 0, -torch.inf)
    nobody = log_votes.isneginf().all(0)
    # logs, so that no power of a large count overflows
    return log_votes.masked_fill(nobody, 0.0).softmax(0).float()


CLIENT_WEIGHTS: dict[str, Callable[[Sequence[Member]], Tensor]] = {
    "samples": samples,
    "sqrt_samples": sqrt_samples,
    "uniform": uniform,
}
PROTOTYPE_WEIGHTS: dict[str, Callable[[Sequence[Member]], Tensor]] = {
    "uniform": uniform,
    "samples": samples,
    "class_counts": class_counts,
    "reliability": reliability,
}
