"""The two prototype terms of FAFI : prototype against feature, prototype against prototype."""

import torch
import torch.nn.functional as F
from torch import Tensor


def prototype_feature(features: Tensor, prototypes: Tensor, labels: Tensor, temperature: float = 1.0) -> Tensor:
    """Prototype-feature contrast of FAFI: each feature picks the prototype of its class.

    L = -mean_i log( exp(f_i.p_y / t) / sum_c exp(f_i.p_c / t) )

    Args:
        features: unit vectors f, (B, D).
        prototypes: one row p a class, (C, D), not normalised.
        labels: class y of each feature, (B,).

    At t = 1, the published value, this is the classification loss CE(f P^T, y) itself: FAFI counts it twice.

    >>> prototype_feature(torch.eye(2), torch.zeros(4, 2), torch.tensor([0, 3])).exp()
    tensor(4.)
    """
    return F.cross_entropy(features @ prototypes.T / temperature, labels)


def prototype_prototype(prototypes: Tensor, temperature: float = 1.0) -> Tensor:
    """Prototype self-contrast of FAFI: each prototype picks itself among all; the diagonal is kept.

    L = -mean_c log( exp(p_c.p_c / t) / sum_k exp(p_c.p_k / t) )

    Args:
        prototypes: one row p a class, (C, D), not normalised.

    For rows drawn from N(0, I) in D = 512 the diagonal wins by hundreds of nats: value and gradient are exactly 0 in
    float32. One class alone gives 0.

    >>> prototype_prototype(torch.zeros(4, 2)).exp()
    tensor(4.)
    """
    classes = torch.arange(len(prototypes), device=prototypes.device)
    return F.cross_entropy(prototypes @ prototypes.T / temperature, classes)
