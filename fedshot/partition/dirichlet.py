"""Every class is divided over the clients by its own Dirichlet draw; nothing is redrawn, nothing is shared."""

import numpy as np

from fedshot.partition.pools import Indices, class_sizes, deal, draw_proportions, whole_counts


def assign(labels: Indices, clients: int, seed: int, alpha: float) -> list[Indices]:
    """The plain disjoint split by class, the recipe of the research notes and of most comparisons since.

    For each class c in order: q ~ Dir(α·1_K); client k gets ⌊q_k·N_c⌋ samples, and the left-over ones go one each
    to distinct random clients. The legacy numpy stream of the seed makes the draws, so the client sizes are those of
    the notes to the sample; which samples they are comes from a stream of its own for each class.

    A client may be left with very few samples, or none: there is no minimum and no redraw.

    >>> part = assign(np.repeat(np.arange(10), 5000), clients=5, seed=1, alpha=0.05)
    >>> [len(indices) for indices in part]
    [15274, 13309, 4729, 9738, 6950]
    """
    random = np.random.RandomState(seed)
    counts = [whole_counts(random, draw_proportions(random, alpha, clients), int(size)) for size in class_sizes(labels)]
    return deal(labels, counts, seed)
