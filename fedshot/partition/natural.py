"""By who wrote, photographed or owns a sample: the heterogeneity that the data really has."""

import numpy as np

from fedshot.errors import UserError
from fedshot.partition.pools import Indices


def assign(labels: Indices, clients: int, seed: int, groups: Indices) -> list[Indices]:
    """One client for each group, in the order of the groups; with fewer clients, several groups to a client.

    Groups are never cut. With fewer clients than groups, the largest group goes first, always to the client with the
    fewest samples, which keeps the sizes as even as uncut groups allow; the seed decides among groups of equal size.

    >>> writers = np.array([7, 7, 3, 5, 3, 5, 5])
    >>> [part.tolist() for part in assign(writers, clients=3, seed=1, groups=writers)]
    [[2, 4], [3, 5, 6], [0, 1]]
    >>> [part.tolist() for part in assign(writers, clients=2, seed=1, groups=writers)]
    [[3, 5, 6], [0, 1, 2, 4]]
    """
    names, group_of = np.unique(groups, return_inverse=True)
    if clients > len(names):
        raise UserError(
            f"recipe 'natural' gives each client at least one group, and {clients} clients are more than the "
            f"{len(names)} groups: give at most {len(names)} clients"
        )
    alone = clients == len(names)
    client_of = np.arange(clients) if alone else _deal_groups(np.bincount(group_of), clients, seed)
    owner = client_of[group_of]
    return [np.flatnonzero(owner == client) for client in range(clients)]


def _deal_groups(group_sizes: Indices, clients: int, seed: int) -> Indices:
    """The client of each group, largest group first to the smallest client, (G,)."""
    by_chance = np.random.RandomState(seed).permutation(len(group_sizes))
    largest_first = by_chance[np.argsort(-group_sizes[by_chance], kind="stable")]
    held = np.zeros(clients, dtype=np.int64)
    client_of = np.zeros(len(group_sizes), dtype=np.int64)
    for group in largest_first:
        client_of[group] = held.argmin()
        held[client_of[group]] += group_sizes[group]
    return client_of
