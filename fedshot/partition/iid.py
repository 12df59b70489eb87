"""All clients alike."""

import numpy as np

from fedshot.partition.pools import Indices


def assign(labels: Indices, clients: int, seed: int) -> list[Indices]:
    """A random permutation cut into K parts whose sizes differ by at most one.

    >>> [len(indices) for indices in assign(np.zeros(10, dtype=int), clients=3, seed=1)]
    [4, 3, 3]
    """
    order = np.random.RandomState(seed).permutation(len(labels)).astype(np.int64)
    return [np.sort(part) for part in np.array_split(order, clients)]
