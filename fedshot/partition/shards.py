"""A few classes for each client."""

import numpy as np

from fedshot.partition.pools import Indices, class_sizes, deal


def assign(labels: Indices, clients: int, seed: int, classes_per_client: int) -> list[Indices]:
    """Every client holds c classes; the holders of a class divide it evenly, without a common sample.

    One client after the other takes the c classes with the fewest holders so far, ties by chance. So the numbers of
    holders differ by at most one, and every class has a holder when K·c ≥ C. Otherwise C − K·c classes are held by
    nobody. A class with fewer samples than holders reaches only as many of them.

    >>> labels = np.repeat(np.arange(4), 10)
    >>> [np.unique(labels[part]).size for part in assign(labels, clients=6, seed=1, classes_per_client=2)]
    [2, 2, 2, 2, 2, 2]
    """
    random = np.random.RandomState(seed)
    sizes = class_sizes(labels)
    present = np.flatnonzero(sizes)
    holders: dict[int, list[int]] = {label: [] for label in present.tolist()}
    for client in range(clients):
        by_chance = random.permutation(present).tolist()
        for label in sorted(by_chance, key=lambda label: len(holders[label]))[:classes_per_client]:
            holders[label].append(client)

    counts = np.zeros((len(sizes), clients), dtype=np.int64)
    for label, held_by in holders.items():
        if held_by:
            even, left = divmod(int(sizes[label]), len(held_by))
            counts[label, held_by] = even
            counts[label, random.permutation(held_by)[:left]] += 1
    return deal(labels, list(counts), seed)
