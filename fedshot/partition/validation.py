"""A validation part of a client's own data, for every choice that must not look at the test set."""

from collections.abc import Sequence

import numpy as np

from fedshot.errors import UserError
from fedshot.partition.pools import Indices
from fedshot.seeds import stream_seed


def hold_out(
    indices: Indices, share: float, seed: int, client: int, labels: Indices | None = None, most: int | None = None
) -> tuple[Indices, Indices]:
    """Take a validation share from the samples of one client: (train, validation), both sorted.

    Args:
        indices: the client's samples, (n,).
        share: in [0, 1); round(share·n) samples are held out, never all of them.
        client: its number; every client draws from the stream ("validation", client) of the seed.
        labels: of the whole data set, (N,). With them, each class gives its share, to the nearest whole sample that
            the total allows, and keeps a training sample as long as another class can give instead.
        most: no more samples than this are held out.

    >>> train, validation = hold_out(np.arange(10), 0.2, seed=1, client=0, labels=np.arange(10) // 5)
    >>> len(train), (validation // 5).tolist()
    (8, [0, 1])
    """
    if not 0 <= share < 1:
        raise UserError(f"a validation share of {share} is not possible: give a number from 0 to below 1, e.g. 0.1")
    samples = np.sort(np.asarray(indices, dtype=np.int64))
    share = share_within(share, len(samples), most)
    wanted = min(round(share * len(samples)), max(len(samples) - 1, 0))
    if not wanted:
        return samples, samples[:0]
    random = np.random.default_rng(stream_seed(seed, "validation", client))
    mine = np.zeros_like(samples) if labels is None else labels[samples]
    strata = [samples[mine == label] for label in np.unique(mine)]
    quotas = _quotas(np.array([len(stratum) for stratum in strata]), wanted, share, random)
    picked = [random.permutation(stratum)[:quota] for stratum, quota in zip(strata, quotas, strict=True)]
    validation = np.sort(np.concatenate([samples[:0], *picked]))
    return np.setdiff1d(samples, validation, assume_unique=True), validation


def same_share_of_each(parts: Sequence[tuple[Indices, Indices]], seed: int, labels: Indices) -> list[Indices]:
    """Thins what clients hold back until each gives the same share of its samples, (M_k,) each.

    A bound on what each holds back gives small clients a large share; a figure on all of it would be theirs. What a
    client trained on judges nothing, whoever else held it back (the recipe `released` hands samples out twice).

    Args:
        parts: train and validation samples of each client.
        labels: of the whole data set, (N,); every class of a client is thinned alike, up to one sample.

    >>> parts = [hold_out(np.arange(100), 0.1, 1, 0), hold_out(np.arange(100, 140), 0.5, 1, 1)]
    >>> [len(kept) for kept in same_share_of_each(parts, 1, np.zeros(140))]
    [10, 4]
    """
    trained = np.unique(np.concatenate([train for train, _ in parts]))
    held = [(len(train) + len(back), np.setdiff1d(back, trained)) for train, back in parts]
    # half a sample more: that much is lost where a share of few samples is rounded, which thins nobody
    least = min(((len(back) + 0.5) / samples for samples, back in held if len(back)), default=0.0)
    return [
        _every_nth(back, min(round(least * samples), len(back)), labels, stream_seed(seed, "judges", client))
        for client, (samples, back) in enumerate(held)
    ]


def _every_nth(samples: Indices, wanted: int, labels: Indices, seed: int) -> Indices:
    """So many of the samples, sorted, by even steps through their classes from a random start: each is as likely."""
    random = np.random.default_rng(seed)
    by_class = samples[np.lexsort((random.random(len(samples)), labels[samples]))]
    steps = np.floor(np.arange(len(samples) + 1) * wanted / max(len(samples), 1) + random.random())
    return np.sort(by_class[np.diff(steps) > 0])


def share_within(share: float, samples: int, most: int | None) -> float:
    """The share of so many samples that is held out if it must not be more than `most` of them.

    >>> share_within(0.1, 1000, None), share_within(0.1, 1000, 50)
    (0.1, 0.05)
    """
    return share if most is None else min(share, most / max(samples, 1))


def _quotas(sizes: Indices, wanted: int, share: float, random: np.random.Generator) -> list[int]:
    """How many each class gives, summing to `wanted`: ⌊share·n_c⌋, then by largest remainder, (C,)."""
    quotas = np.floor(share * sizes).astype(np.int64)
    for _ in range(wanted - int(quotas.sum())):
        exhausted = quotas >= sizes
        emptied = quotas + 1 >= sizes
        # the last key counts first: never beyond the class, then not the last one of a class, then what is still due
        order = np.lexsort((random.random(len(sizes)), quotas - share * sizes, emptied, exhausted))
        quotas[order[0]] += 1
    return quotas.tolist()
