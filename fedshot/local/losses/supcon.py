"""The supervised contrastive loss."""

import torch
from torch import Tensor


def supcon(features: Tensor, labels: Tensor, temperature: float = 0.07) -> Tensor:
    """Supervised contrastive loss, Khosla et al. 2020, eq. 2 (arXiv:2004.11362).

    L = -mean_i mean_{p in P(i)} log( exp(z_i.z_p / t) / sum_{a != i} exp(z_i.z_a / t) )

    Args:
        features: unit vectors z, (B, D). Two views of n images are 2n vectors with the labels repeated.
        labels: class of each vector, (B,). P(i) are the others of i's class.

    An anchor without positives counts as 0, and stays in the mean over all anchors. Its floor is about
    log |P(i)|: the value depends on the batch size and on how many classes the batch holds.

    >>> supcon(torch.eye(2).repeat_interleave(2, 0), torch.tensor([0, 0, 1, 1]), temperature=1.0)
    tensor(0.5514)
    """
    itself = torch.eye(len(labels), dtype=torch.bool, device=features.device)  # (B, B)
    positive = (labels[:, None] == labels) & ~itself
    similarity = features @ features.T / temperature
    # The smallest finite number, not -inf, which would put a NaN into a row that holds nothing else (B = 1).
    others = similarity.masked_fill(itself, torch.finfo(similarity.dtype).min)
    # log_softmax subtracts the largest entry of the row and lets no gradient through it.
    log_share = others.log_softmax(dim=1)
    matched = log_share.masked_fill(~positive, 0).sum(dim=1)  # (B,)
    return -(matched / positive.sum(dim=1).clamp(min=1)).mean()
