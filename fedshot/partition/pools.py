"""The samples of each class, and how a class is cut into shares."""

from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from fedshot.seeds import stream_seed

Indices = NDArray[np.int64]
Shares = NDArray[np.float64]


def class_sizes(labels: Indices) -> Indices:
    """Number of samples of each class up to the largest label, (C,).

    >>> class_sizes(np.array([2, 0, 2])).tolist()
    [1, 0, 2]
    """
    return np.bincount(labels).astype(np.int64)


def shuffled_class(labels: Indices, label: int, seed: int) -> Indices:
    """The indices of one class, in the random order of that class's own stream."""
    pool: list[int] = np.flatnonzero(labels == label).tolist()
    Random(stream_seed(seed, "partition", label)).shuffle(pool)
    return np.array(pool, dtype=np.int64)


def deal(labels: Indices, counts: Sequence[Indices], seed: int) -> list[Indices]:
    """Hand every client its count of each class, as contiguous disjoint slices of the shuffled class.

    Args:
        counts: for each class c the number of samples of each client, C arrays of (K,), with a sum of at most N_c.

    >>> [part.tolist() for part in deal(np.array([0, 0, 1]), [np.array([2, 0]), np.array([0, 1])], seed=1)]
    [[0, 1], [2]]
    """
    hands: list[list[Indices]] = [[] for _ in counts[0]]
    for label, count in enumerate(counts):
        pool = shuffled_class(labels, label, seed)
        for hand, stop, length in zip(hands, np.cumsum(count), count, strict=True):
            hand.append(pool[stop - length : stop])
    return [np.sort(np.concatenate(hand)) for hand in hands]


def draw_proportions(random: np.random.RandomState, alpha: float, parts: int) -> Shares:
    """One draw from the symmetric Dirichlet distribution, (parts,).

    A Dirichlet draw is a vector of gamma draws divided by their sum. For α below about 0.001 all of them may be
    smaller than the smallest float, and numpy returns nan. The limit of Dir(α) for α → 0 puts everything on one
    part, each equally likely; that is what such a draw becomes.

    >>> float(draw_proportions(np.random.RandomState(1), 1e-300, 4).max())
    1.0
    """
    proportions = random.dirichlet([alpha] * parts)
    if np.isfinite(proportions).all():
        return proportions
    return one_part(random, parts)


def one_part(random: np.random.RandomState, parts: int) -> Shares:
    """Everything to one part, each equally likely, (parts,)."""
    return np.eye(parts)[random.randint(parts)]


def whole_counts(random: np.random.RandomState, proportions: Shares, total: int) -> Indices:
    """⌊q·N⌋ for each client; the fewer than K samples left over go one each to distinct random clients, (K,).

    >>> whole_counts(np.random.RandomState(1), np.array([0.5, 0.25, 0.25]), 4).tolist()
    [2, 1, 1]
    """
    counts = np.floor(proportions * total).astype(np.int64)
    left = total - int(counts.sum())
    if left > 0:
        counts[random.choice(len(counts), left, replace=False)] += 1
    return counts
