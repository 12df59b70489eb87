"""Every client draws a taste for the classes; each class is divided in proportion to the tastes."""

import numpy as np

from fedshot.partition.pools import Indices, Shares, class_sizes, deal, draw_proportions, one_part, whole_counts


def assign(labels: Indices, clients: int, seed: int, alpha: float) -> list[Indices]:
    """The split of FedFisher (Jhunjhunwala et al. 2024, arXiv:2403.12329) and FedCVAE (Heinbaugh et al. 2023).

    p_k ~ Dir(α·1_C) for each client; client k gets the share p_kc / Σ_j p_jc of class c, in whole samples as in
    recipe `dirichlet`. A class for which no client has any taste, as happens at tiny α, goes to one random client.

    >>> part = assign(np.repeat(np.arange(10), 100), clients=8, seed=1, alpha=0.05)
    >>> sum(len(indices) for indices in part)
    1000
    """
    random = np.random.RandomState(seed)
    sizes = class_sizes(labels)
    priors = np.stack([draw_proportions(random, alpha, len(sizes)) for _ in range(clients)])  # (K, C)
    counts = [
        whole_counts(random, _shares(random, tastes), int(size)) for tastes, size in zip(priors.T, sizes, strict=True)
    ]
    return deal(labels, counts, seed)


def _shares(random: np.random.RandomState, tastes: Shares) -> Shares:
    """Tastes of the clients for one class, divided by their sum, (K,)."""
    total = tastes.sum()
    return tastes / total if total > 1e-290 else one_part(random, len(tastes))
