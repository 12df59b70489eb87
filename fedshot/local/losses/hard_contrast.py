"""The supervised contrastive loss with hard negatives: re-weighted, and mixed."""

import torch
from torch import Tensor


def hard_contrast(
    features: Tensor, labels: Tensor, temperature: float = 0.07, beta: float = 1.0, synthetic: int = 0
) -> Tensor:
    """SupCon (Khosla et al. 2020, eq. 2) that looks harder at the negatives that are close to the anchor.

    L = -mean_i mean_{p in P(i)} log( exp(z_i.z_p / t) / [sum_{p in P(i)} exp(z_i.z_p / t)
    + sum_{n in N(i)} w_in exp(z_i.z_n / t) + sum_{j <= S} exp(z_i.m_ij / t)] )

    Weights, Robinson et al. 2021 (arXiv:2010.04592): w_in = |N(i)| exp(beta z_i.z_n / t) / sum_{n' in N(i)}
    exp(beta z_i.z_n' / t), of mean 1 over N(i). They get no gradient: they say which negatives to look at. With one, an
    anchor could lower its loss by going near an easy negative, which takes weight from the hard ones.

    Mixed negatives, after Dong et al. 2024 (doi:10.1007/s11063-024-11522-2): m_ij is the unit vector of the mean of the
    j-th and the (j+1)-th hardest of N(i). Gradients flow through them as through the batch.

    Args:
        features: unit vectors z, (B, D).
        labels: class of each vector, (B,). P(i) are the others of i's class, N(i) the vectors of other classes.
        beta: how much harder negatives count; 0 weighs all alike.
        synthetic: S, the number of mixed negatives of an anchor; one with fewer than S + 1 negatives has fewer.

    beta = 0 and synthetic = 0 give SupCon.

    >>> unit, labels = torch.eye(3)[[0, 0, 1, 2]], torch.tensor([0, 0, 1, 1])
    >>> hard_contrast(unit, labels, temperature=1.0, beta=0.0)
    tensor(0.8250)
    >>> hard_contrast(unit, labels, temperature=1.0, beta=0.0, synthetic=1)
    tensor(1.0650)
    """
    itself = torch.eye(len(labels), dtype=torch.bool, device=features.device)  # (B, B)
    same = labels[:, None] == labels
    positive, negative = same & ~itself, ~same
    cosine = features @ features.T
    similarity = cosine / temperature
    lowest = torch.finfo(similarity.dtype).min
    rows = (similarity + _log_weights(similarity.detach(), negative, beta)).masked_fill(itself, lowest)
    if synthetic:
        mixed, exists = _mixed(cosine, negative, synthetic)
        rows = torch.cat([rows, (mixed / temperature).masked_fill(~exists, lowest)], dim=1)  # (B, B + S)
    log_share = similarity - rows.logsumexp(dim=1, keepdim=True)
    matched = log_share.masked_fill(~positive, 0).sum(dim=1)  # (B,)
    return -(matched / positive.sum(dim=1).clamp(min=1)).mean()


def _log_weights(similarity: Tensor, negative: Tensor, beta: float) -> Tensor:
    """log w for negatives, 0 for the others, (B, B)."""
    hardness = (beta * similarity).masked_fill(~negative, torch.finfo(similarity.dtype).min)
    count = negative.sum(dim=1, keepdim=True).clamp(min=1).to(similarity.dtype)
    return (hardness.log_softmax(dim=1) + count.log()).masked_fill(~negative, 0)


def _mixed(cosine: Tensor, negative: Tensor, synthetic: int) -> tuple[Tensor, Tensor]:
    """Similarity of each anchor to its mixed negatives, and which of them exist, both (B, S).

    With unit vectors a and b, z.(a + b) / |a + b| = (z.a + z.b) / sqrt(2 + 2 a.b): no mixed vector is ever made.
    """
    hardness = cosine.detach().masked_fill(~negative, torch.finfo(cosine.dtype).min)
    order = hardness.topk(min(synthetic + 1, len(cosine)), dim=1).indices  # (B, S + 1)
    first, second = order[:, :-1], order[:, 1:]
    to_both = cosine.gather(1, first) + cosine.gather(1, second)
    length = (2 + 2 * cosine[first, second]).clamp(min=1e-6).sqrt()  # opposite vectors have no mean direction
    exists = torch.arange(2, order.shape[1] + 1, device=cosine.device) <= negative.sum(dim=1, keepdim=True)
    return to_both / length, exists
