"""Heads: raw features (B, d) to logits (B, C).

`class_rows` names a head's state entries whose first axis is the class, `feature_columns` those whose second
axis is the feature: what a fusion rule must know to weigh classes or to renumber features.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def unit(features: Tensor) -> Tensor:
    """f = h / |h| along the last axis; a zero vector stays zero, and its gradient stays finite.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    return functional.normalize(features, dim=-1, eps=1e-6)


class PrototypeHead(nn.Module):
    """z_c = unit(h) . p_c (FAFI, Zeng et al. 2025): no temperature, no bias.

    The prototypes P (C, d) start as N(0, 1) and are never normalised, neither in training nor at inference.
    """

    class_rows: tuple[str, ...] = ("prototypes",)
    feature_columns: tuple[str, ...] = ("prototypes",)

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.prototypes = nn.Parameter(torch.randn(classes, width))

    @classmethod
    def of(cls, prototypes: Tensor) -> "PrototypeHead":
        """The head with these prototypes (C, d)."""
        made = cls(0, 0)
        made.prototypes = nn.Parameter(prototypes)
        return made

    def forward(self, features: Tensor) -> Tensor:
        return unit(features) @ self.prototypes.T  # (B, C)


class LinearHead(nn.Linear):
    """z = W h + b on raw features, started as torch starts a linear layer."""

    class_rows: tuple[str, ...] = ("weight", "bias")
    feature_columns: tuple[str, ...] = ("weight",)


class EtfHead(nn.Module):
    """z = s . unit(W h) M (FedETF, Li et al. 2023, arXiv:2303.10058) with its learned scale s > 0.

    Without the scale no logit exceeds 1 and the cross-entropy cannot fall below 1.38 for ten classes.

    Args:
        etf: M (m, C), one unit vector of a simplex ETF per column; W is (m, d). FedETF takes m = C. It is
            common knowledge, hence no part of the state that a client uploads.
        scale: the start of s.
    """

    class_rows: tuple[str, ...] = ()
    feature_columns: tuple[str, ...] = ("project.weight",)
    etf: Tensor

    def __init__(self, width: int, etf: Tensor, scale: float = 10.0) -> None:
        super().__init__()
        self.project = nn.Linear(width, len(etf), bias=False)
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale)))
        self.register_buffer("etf", etf.clone(), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        return self.log_scale.exp() * unit(self.project(features)) @ self.etf  # (B, C)


class DualHead(nn.Module):
    """A prototype head that predicts, and a linear head beside it that only a loss reads (V17)."""

    class_rows: tuple[str, ...] = ("prototype.prototypes", "linear.weight", "linear.bias")
    feature_columns: tuple[str, ...] = ("prototype.prototypes", "linear.weight")

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.prototype = PrototypeHead(width, classes)
        self.linear = LinearHead(width, classes)

    def forward(self, features: Tensor) -> Tensor:
        return self.prototype(features)

    def linear_logits(self, features: Tensor) -> Tensor:
        """The linear head's logits (B, C) for raw features."""
        return self.linear(features)
