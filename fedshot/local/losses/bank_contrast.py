"""The supervised contrastive loss against the batch and a bank of features."""

from typing import Literal

import torch
from torch import Tensor


def bank_contrast(
    features: Tensor,
    labels: Tensor,
    bank: Tensor,
    bank_labels: Tensor,
    temperature: float = 0.07,
    same_class: Literal["repel", "ignore", "attract"] = "ignore",
    filled: Tensor | None = None,
) -> Tensor:
    """SupCon (Khosla et al. 2020, eq. 2) whose denominators also run over a bank, as a queue does in MoCo (He et al.
    2020, arXiv:1911.05722).

    L = -mean_i mean_{p in P(i)} log( exp(z_i.z_p / t) / [sum_{a != i} exp(z_i.z_a / t) + sum_{m in M(i)}
    exp(z_i.b_m / t)] )

    Args:
        features: unit vectors z of the batch, (B, D).
        labels: class of each vector, (B,).
        bank: unit vectors b, (M, D). They get no gradient.
        bank_labels: class of each entry, (M,).
        same_class: what entries of an anchor's own class are. "repel": negatives like the rest, M(i) is the whole bank.
            "ignore": they leave M(i). "attract": they stay in M(i) and are positives, in P(i), too.
        filled: which entries exist, (M,) bool. The others leave every M(i). None: all exist.

    A bank without entries gives SupCon.

    >>> unit = torch.eye(3)[[0, 0, 1, 1]]
    >>> bank, labels = torch.eye(3)[[0, 2]], torch.tensor([0, 0, 1, 1])
    >>> bank_contrast(unit, labels, bank, torch.tensor([0, 2]), temperature=1.0)
    tensor(0.8243)
    >>> bank_contrast(unit, labels, bank, torch.tensor([0, 2]), temperature=1.0, same_class="repel")
    tensor(1.0187)
    """
    itself = torch.eye(len(labels), dtype=torch.bool, device=features.device)  # (B, B)
    same = labels[:, None] == bank_labels  # (B, M)
    exists = torch.ones_like(same) if filled is None else filled.expand_as(same)
    counted = exists & ~same if same_class == "ignore" else exists
    attracting = exists & same if same_class == "attract" else torch.zeros_like(same)
    positive = torch.cat([(labels[:, None] == labels) & ~itself, attracting], dim=1)  # (B, B + M)
    similarity = features @ torch.cat([features, bank.detach()]).T / temperature  # (B, B + M)
    others = similarity.masked_fill(torch.cat([itself, ~counted], dim=1), torch.finfo(similarity.dtype).min)
    matched = others.log_softmax(dim=1).masked_fill(~positive, 0).sum(dim=1)  # (B,)
    return -(matched / positive.sum(dim=1).clamp(min=1)).mean()
