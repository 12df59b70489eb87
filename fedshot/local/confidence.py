"""How sure a client is of each class that it holds."""

import torch
from torch import Tensor

from fedshot.local.familiarity import class_counts, class_means


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
