"""Clients of equal size, each with its own taste: a class prior drawn per client."""

from bisect import bisect_right

import numpy as np

from fedshot.partition.pools import Indices, Shares, class_sizes, deal, draw_proportions


def assign(labels: Indices, clients: int, seed: int, alpha: float) -> list[Indices]:
    """The split of FedDyn (Acar et al. 2021, arXiv:2111.04263), also used by Co-Boosting.

    Client k draws a class prior p_k ~ Dir(α·1_C) over the classes. In random order, the clients then draw one sample
    after the other, without replacement: first the class by p_k, then a sample of it, until each has N/K (sizes
    differ by at most one, so nothing is left over). When a class is exhausted, every prior is renormalised over
    the classes that remain, which is the same as drawing again; a prior without any mass there follows what remains.

    >>> part = assign(np.repeat(np.arange(10), 100), clients=8, seed=1, alpha=0.05)
    >>> {len(indices) for indices in part}
    {125}
    """
    random = np.random.RandomState(seed)
    remaining = class_sizes(labels)
    priors = np.stack([draw_proportions(random, alpha, len(remaining)) for _ in range(clients)])  # (K, C)
    turns = random.permutation(np.arange(len(labels)) % clients)  # whose turn it is, each client N/K times
    thresholds = random.random_sample(len(labels))

    counts = np.zeros((len(remaining), clients), dtype=np.int64)
    cumulated = _cumulated(priors, remaining)
    for client, threshold in zip(turns.tolist(), thresholds.tolist(), strict=True):
        row = cumulated[client]
        label = bisect_right(row, threshold * row[-1])
        counts[label, client] += 1
        remaining[label] -= 1
        if remaining[label] == 0 and remaining.any():
            cumulated = _cumulated(priors, remaining)
    return deal(labels, list(counts), seed)


def _cumulated(priors: Shares, remaining: Indices) -> list[list[float]]:
    """Cumulated weights of each client over the classes that remain, K lists of C; exhausted classes weigh nothing."""
    weights = priors * (remaining > 0)
    lost = weights.sum(axis=1) < 1e-290  # too small to be cumulated without rounding it away
    weights[lost] = remaining
    return np.cumsum(weights, axis=1).tolist()
