"""The overlapping split of released one-shot code, here only to reproduce published figures."""

from random import Random

import numpy as np

from fedshot.errors import UserError
from fedshot.partition.pools import Indices, class_sizes, draw_proportions
from fedshot.seeds import stream_seed


def assign(labels: Indices, clients: int, seed: int, alpha: float) -> list[Indices]:
    """The split in the released code of FAFI and IntactOFL: clients are **not** disjoint.

    For each class c in order: q ~ Dir(α·1_K); client k takes min(N_c, round(10·N_0·q_k)) samples from the whole
    class, without removing them, where N_0 is the size of class 0. Every client with q_k ≥ 0.1 gets the entire class
    (if classes are equally large), so that the clients share samples, more data is handed out than exists, and the
    amount grows with α. Never compare a figure on this split with one on a disjoint split.

    >>> part = assign(np.repeat(np.arange(10), 5000), clients=5, seed=1, alpha=0.05)
    >>> sum(len(indices) for indices in part) / 50000
    1.6539
    """
    sizes = class_sizes(labels)
    if sizes[0] == 0:
        raise UserError("recipe 'released' scales by the size of class 0, which has no sample: choose another recipe")
    random = np.random.RandomState(seed)
    hands: list[list[Indices]] = [[] for _ in range(clients)]
    for label, size in enumerate(sizes.tolist()):
        pool = np.flatnonzero(labels == label)
        wanted = np.rint(10 * sizes[0] * draw_proportions(random, alpha, clients))
        for client, count in enumerate(np.minimum(size, wanted).astype(int).tolist()):
            picked = Random(stream_seed(seed, "partition", label, client)).sample(range(size), count)
            hands[client].append(pool[np.array(picked, dtype=np.int64)])
    return [np.sort(np.concatenate(hand)) for hand in hands]
