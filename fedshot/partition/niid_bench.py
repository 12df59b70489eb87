"""The split by class of NIID-Bench: full clients get no more, and nobody has fewer than ten samples."""

import numpy as np

from fedshot.errors import UserError
from fedshot.partition.pools import Indices, Shares, class_sizes, deal, draw_proportions

SMALLEST_CLIENT = 10
MOST_DRAWS = 1000


def assign(labels: Indices, clients: int, seed: int, alpha: float) -> list[Indices]:
    """Li et al. 2022, "Federated learning on non-IID data silos" (arXiv:2102.02079), label skew by Dirichlet.

    For each class c in order: q ~ Dir(α·1_K), q_k = 0 for a client that already holds N/K samples, q divided by its
    sum; the class is cut at ⌊N_c·(q_1 + … + q_k)⌋. The whole draw is repeated until every client has at least
    10 samples. The original repeats for ever; here 1000 fruitless draws are an error.

    >>> part = assign(np.repeat(np.arange(10), 100), clients=5, seed=1, alpha=0.05)
    >>> min(len(indices) for indices in part) >= 10
    True
    """
    sizes = class_sizes(labels)
    if len(labels) < SMALLEST_CLIENT * clients:
        raise UserError(
            f"recipe 'niid-bench' gives every client at least {SMALLEST_CLIENT} samples, and {len(labels)} samples do "
            f"not suffice for {clients} clients: give at most {len(labels) // SMALLEST_CLIENT} clients"
        )
    random = np.random.RandomState(seed)
    reached = 0
    for _ in range(MOST_DRAWS):
        counts = _draw_counts(random, sizes, clients, alpha)
        smallest = int(np.sum(counts, axis=0).min())
        if smallest >= SMALLEST_CLIENT:
            return deal(labels, counts, seed)
        reached = max(reached, smallest)
    raise UserError(
        f"recipe 'niid-bench' found no split with at least {SMALLEST_CLIENT} samples for each of {clients} clients in "
        f"{MOST_DRAWS} draws at alpha = {alpha} (the best had a smallest client of {reached}): give fewer clients, a "
        f"larger alpha, or recipe 'dirichlet'"
    )


def _draw_counts(random: np.random.RandomState, sizes: Indices, clients: int, alpha: float) -> list[Indices]:
    """One draw of how many samples of each class every client gets, C arrays of (K,)."""
    held = np.zeros(clients, dtype=np.int64)
    counts = []
    for size in sizes:
        proportions = draw_proportions(random, alpha, clients)
        is_open = held < sizes.sum() / clients
        if not is_open.any():  # only when all samples are handed out and the class is empty
            is_open[:] = True
        count = _cut(random, proportions * is_open, is_open, int(size))
        held += count
        counts.append(count)
    return counts


def _cut(random: np.random.RandomState, proportions: Shares, is_open: np.ndarray, size: int) -> Indices:
    """Cut a class at the cumulated proportions, (K,); if all of them lie on full clients, one open client gets it."""
    takers = np.flatnonzero(is_open)
    if proportions.sum() > 0:
        cuts = np.floor(np.cumsum(proportions / proportions.sum()) * size).astype(np.int64)
    else:
        cuts = np.where(np.arange(len(is_open)) >= random.choice(takers), size, 0)
    cuts[takers[-1] :] = size  # a rounded sum just below 1 must not hand the last sample to a full client
    return np.diff(cuts, prepend=0)
