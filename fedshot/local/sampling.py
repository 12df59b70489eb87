"""Orders of a client's images that favour no class."""

import torch
from torch import Tensor


def balanced_order(labels: Tensor, generator: torch.Generator) -> Tensor:
    """As many images as the client holds, every class that it holds equally often (up to one); indices, (N,).

    Balanced sampling as in Stratify, Wong et al. 2025 (arXiv:2504.13462). The order is a row of rounds; a round names
    every class once, in random order, so that every batch is balanced as well. Images of a class come in random order,
    and again only after all of the class were shown: a small class is seen many times, a large one in part.

    Args:
        labels: class of each image, (N,), at least one, on the CPU.

    >>> labels = torch.tensor([0, 0, 0, 0, 0, 7])
    >>> labels[balanced_order(labels, torch.Generator().manual_seed(1))].bincount()[[0, 7]]
    tensor([3, 3])
    """
    held = labels.unique().tolist()
    rounds = -(-len(labels) // len(held))
    images = torch.stack([_shown(labels == label, rounds, generator) for label in held], dim=1)  # (rounds, held)
    return images.gather(1, _shuffled(rounds, len(held), generator)).flatten()[: len(labels)]


def _shown(members: Tensor, times: int, generator: torch.Generator) -> Tensor:
    """The images of one class, again and again, each time in another order, (times,)."""
    images = members.nonzero().flatten()
    return images[_shuffled(-(-times // len(images)), len(images), generator)].flatten()[:times]


def _shuffled(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """A random order of 0 … columns - 1 in each row, (rows, columns)."""
    return torch.rand(rows, columns, generator=generator, dtype=torch.float64).argsort(dim=1)
