"""How far prototypes are from fixed anchors: the alignment term of the ETF line, and what it really moves."""

import torch
import torch.nn.functional as F
from torch import Tensor


def mse_all(prototypes: Tensor, anchors: Tensor) -> Tensor:
    """Mean squared distance of prototypes to anchors over all entries.

    L = 1/(C d) sum_c ||p_c - a_c||^2

    Args:
        prototypes: one row p a class, (C, d).
        anchors: one row a a class, (C, d).

    With p ~ N(0, I) and unit anchors it starts at 1 + 1/d, and its gradient is 2 (p - a) / (C d): a weight decay of p
    more than a turn towards a.

    >>> mse_all(torch.ones(2, 4), torch.zeros(2, 4))
    tensor(1.)
    """
    return F.mse_loss(prototypes, anchors)


def mse_present(prototypes: Tensor, anchors: Tensor, labels: Tensor) -> Tensor:
    """Mean squared distance over the classes that occur in the batch.

    L = 1/(|S| d) sum_{c in S} ||p_c - a_c||^2,  S = set of labels

    Args:
        prototypes: one row p a class, (C, d).
        anchors: one row a a class, (C, d).
        labels: classes of the batch, (B,); how often one occurs does not matter.

    >>> mse_present(torch.tensor([[1.0, 1.0], [9.0, 9.0]]), torch.zeros(2, 2), torch.tensor([0, 0]))
    tensor(1.)
    """
    return _mean_present((prototypes - anchors).square().mean(dim=1), labels)


def cosine(prototypes: Tensor, anchors: Tensor) -> Tensor:
    """Mean cosine distance of prototypes to anchors: direction only, whatever the length of either.

    L = mean_c (1 - cos(p_c, a_c))

    Args:
        prototypes: one row p a class, (C, d).
        anchors: one row a a class, (C, d).

    An anchor of length 0 has cosine 0 with everything: loss 1, gradient 0.

    >>> cosine(torch.eye(2), torch.tensor([[5.0, 0.0], [0.0, -5.0]]))
    tensor(1.)
    """
    return (1 - F.cosine_similarity(prototypes, anchors, dim=1)).mean()


def mean_cosine(prototypes: Tensor, anchors: Tensor) -> Tensor:
    """Mean over classes of cos(p_c, a_c), without gradient: how much of the anchors' geometry was reached.

    Args:
        prototypes: one row p a class, (C, d).
        anchors: one row a a class, (C, d).

    >>> mean_cosine(2 * torch.eye(3), torch.eye(3))
    tensor(1.)
    """
    return F.cosine_similarity(prototypes.detach(), anchors.detach(), dim=1).mean()


def _mean_present(distances: Tensor, labels: Tensor) -> Tensor:
    """Mean of (C,) over the classes in labels (B,), with shapes that do not depend on which they are."""
    classes = torch.arange(len(distances), device=distances.device)
    present = (labels[:, None] == classes).any(dim=0)  # (C,)
    return distances.masked_fill(~present, 0).sum() / present.sum().clamp(min=1)
