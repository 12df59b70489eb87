"""The supervised contrastive loss in which every class of the batch counts alike."""

import torch
from torch import Tensor


def balanced_supcon(features: Tensor, labels: Tensor, temperature: float = 0.07) -> Tensor:
    """SupCon with the class-averaging of Zhu et al. 2022 (arXiv:2207.09052), without their class centres.

    L = mean_c mean_{i in B_c} L_i,
    L_i = -mean_{p in P(i)} log( exp(z_i.z_p / t) / sum_c' mean_{a in B_c', a != i} exp(z_i.z_a / t) )

    Args:
        features: unit vectors z, (B, D).
        labels: class of each vector, (B,). B_c are the vectors of class c, P(i) the others of i's class; c and c' run
            over the classes of the batch.

    Classes, not vectors, share the denominators and the loss. An anchor without positives counts as 0 and stays in the
    mean of its class. The floor is 0, whatever the batch: collapsed orthogonal classes give log(1 + (C - 1) e^{-1/t}).

    >>> unit, labels = torch.eye(2)[[0, 0, 0, 0, 1, 1]], torch.tensor([0, 0, 0, 0, 1, 1])
    >>> balanced_supcon(unit, labels, temperature=1.0)
    tensor(0.3133)
    """
    itself = torch.eye(len(labels), dtype=torch.bool, device=features.device)  # (B, B)
    same = labels[:, None] == labels
    positive, size = same & ~itself, same.sum(dim=1)  # (B, B), (B,)
    similarity = features @ features.T / temperature
    others = (size - same.long()).clamp(min=1)  # (B, B) how many of a's class the anchor i is compared with
    averaged = (similarity - others.to(similarity.dtype).log()).masked_fill(itself, torch.finfo(similarity.dtype).min)
    log_share = similarity - averaged.logsumexp(dim=1, keepdim=True)
    matched = log_share.masked_fill(~positive, 0).sum(dim=1) / positive.sum(dim=1).clamp(min=1)  # (B,)
    share = 1 / size.to(similarity.dtype)  # adds up to the number of classes
    return -(matched * share).sum() / share.sum()
