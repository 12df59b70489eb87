"""Cross-entropy, plain and corrected for the class counts of a client."""

import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy.

    L = -mean_i log softmax(z_i)[y_i]

    Args:
        logits: scores z, (B, C).
        labels: class y of each row, (B,).

    >>> import torch
    >>> cross_entropy(torch.zeros(3, 4), torch.tensor([0, 1, 3])).exp()
    tensor(4.)
    """
    return F.cross_entropy(logits, labels)


def balanced_softmax(logits: Tensor, labels: Tensor, class_counts: Tensor) -> Tensor:
    """Balanced softmax, Ren et al. 2020, eq. 3 (arXiv:2007.10740): the loss sees the client's class prior, the logits
    stay free of it.

    L = -mean_i log( n_y e^{z_iy} / sum_c n_c e^{z_ic} ),  n_c = max(count of c, 1)

    Args:
        logits: scores z, (B, C).
        labels: class y of each row, (B,).
        class_counts: samples that the client holds of each class, (C,), any number type.

    A class without samples counts as one sample, so that its logit is still pushed down.

    >>> import torch
    >>> balanced_softmax(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([3, 1])).exp()
    tensor(1.3333)
    """
    log_prior = class_counts.to(logits.dtype).clamp(min=1).log()  # (C,)
    return F.cross_entropy(logits + log_prior, labels)
