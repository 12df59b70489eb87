"""How sure a client is of each class that it holds, and how sure it may be."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from fedshot.local.familiarity import class_counts, class_means

_TEMPERATURES = torch.logspace(-2, 1, 97)  # 7 % apart


def class_confidence(logits: Tensor, labels: Tensor, held: Tensor) -> Tensor:
    """q_c, the mean probability that a model gives class c on images of c, (C,).

    Args:
        logits: of the images, (N, C).
        labels: their classes, (N,).
        held: which classes the client was trained on, (C,) bool; the others get 0.

    A class that the client holds and of which there is no image here gets the mean over all images.

    >>> logits = torch.tensor([[0.6, 0.4, 0.0], [0.2, 0.8, 0.0]]).log()
    >>> class_confidence(logits, torch.tensor([0, 0]), torch.tensor([True, True, False]))
    tensor([0.4000, 0.4000, 0.0000])
    """
    own = logits.softmax(dim=1).gather(1, labels[:, None])  # (N, 1)
    there = class_counts(labels, len(held)) > 0
    means = class_means(own, labels, len(held))[:, 0]
    return torch.where(there, means, own.mean()).masked_fill(~held, 0).clamp(max=1)  # a mean of ones may round up


def temperature(logits: Tensor, labels: Tensor, held: Tensor) -> Tensor:
    """T for which softmax(logits / T) over the held classes is most likely right, Guo et al. 2017 (arXiv:1706.04599).

    The maximum of the posterior, (1,), with log T ~ N(0, 1) before anything is seen: few images do not say how sure a
    model may be. Images of classes that are not held are left out.

    Args:
        logits: of held-out images, (M, C).
        labels: their classes, (M,).
        held: which classes the client was trained on, (C,) bool.

    >>> sure = torch.tensor([[8.0, 0.0]] * 100)
    >>> labels = torch.tensor([0] * 73 + [1] * 27)  # right as often as logits of 1 and 0 say
    >>> temperature(sure, labels, torch.tensor([True, True])).round(decimals=1)
    tensor([7.5000])
    """
    known = held[labels]
    allowed = logits.masked_fill(~held, -torch.inf)
    costs = []
    for t in _TEMPERATURES.tolist():
        each = functional.cross_entropy(allowed / t, labels, reduction="none")
        costs.append(torch.where(known, each, 0).sum() + math.log(t) ** 2 / 2)
    return _TEMPERATURES.to(logits.device, non_blocking=True).index_select(0, torch.stack(costs).argmin()[None])


def held_out_error(logits: Tensor, labels: Tensor, held: Tensor) -> Tensor:
    """e, how often a model errs among the classes that it was trained on, (1,): (wrong + 1) / (M + 2).

    The mean of what one may believe after M images with nothing known before: few images do not make a model perfect.

    Args:
        logits: of held-out images, (M, C).
        labels: their classes, (M,).
        held: which classes the client was trained on, (C,) bool.

    >>> held_out_error(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 1]), torch.tensor([True, True]))
    tensor([0.5000])
    """
    wrong = (logits.masked_fill(~held, -torch.inf).argmax(1) != labels).sum()
    return (wrong[None] + 1) / (len(labels) + 2)
