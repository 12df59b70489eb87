"""Distillation: a student is drawn to what a teacher says about all classes, not to a label alone."""

import torch.nn.functional as F
from torch import Tensor


def distillation(logits: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Divergence of a student from its teacher, both softened; Hinton et al. 2015, section 2 (arXiv:1503.02531).

    L = T^2 mean_i sum_c q_ic log( q_ic / softmax(z_i / T)_c )

    Args:
        logits: scores z of the student, (B, C).
        targets: what the teacher says at the same temperature, q = softmax(t / T), (B, C).
        temperature: T > 0. The factor T^2 keeps the gradient of the same order whatever T is.

    A class to which the teacher gives probability 0 counts as 0.

    >>> import torch
    >>> distillation(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]), temperature=1.0).exp()
    tensor(2.)
    """
    return temperature**2 * F.kl_div((logits / temperature).log_softmax(dim=1), targets, reduction="batchmean")
