"""The validation part of a client's own data."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedshot.errors import UserError
from fedshot.partition import hold_out, same_share_of_each


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    share=st.floats(0, 1, exclude_max=True),
    seed=st.integers(0, 2**40),
)
@example(sizes=[1, 1, 1, 1, 6], share=0.5, seed=0)  # the class of six gives two for those that are spared
@settings(max_examples=80, deadline=None)
def test_a_share_of_every_class_is_held_out(sizes: list[int], share: float, seed: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    mine = np.random.RandomState(1).permutation(len(labels))
    train, validation = hold_out(mine, share, seed, client=3, labels=labels)
    assert np.array_equal(np.sort(np.concatenate([train, validation])), np.arange(len(labels)))
    assert (np.diff(train) > 0).all() and (np.diff(validation) > 0).all()
    assert len(validation) == min(round(share * len(labels)), max(len(labels) - 1, 0))
    held_out, due = np.bincount(labels[validation], minlength=len(sizes)), share * np.array(sizes)
    spared = (due - held_out)[held_out == np.array(sizes) - 1].clip(0).sum()  # by classes that keep their last sample
    assert (held_out > due - 1).all() and (held_out < due + 2 + spared).all()


def test_it_is_stratified_and_spares_the_only_sample_of_a_class() -> None:
    labels = np.repeat(np.arange(4), [100, 50, 10, 1])
    train, validation = hold_out(np.arange(161), 0.2, seed=1, client=0, labels=labels)
    assert np.bincount(labels[validation], minlength=4).tolist() == [20, 10, 2, 0]
    assert np.bincount(labels[train]).tolist() == [80, 40, 8, 1]


def test_a_bound_takes_fewer_of_each_class() -> None:
    labels = np.repeat(np.arange(3), [600, 300, 100])
    train, validation = hold_out(np.arange(1000), 0.2, seed=1, client=0, labels=labels, most=50)
    assert np.bincount(labels[validation]).tolist() == [30, 15, 5] and len(train) == 950
    unbound = hold_out(np.arange(1000), 0.2, seed=1, client=0, labels=labels)
    bound = hold_out(np.arange(1000), 0.2, seed=1, client=0, labels=labels, most=200)
    assert all(np.array_equal(a, b) for a, b in zip(unbound, bound, strict=True))
    assert len(hold_out(np.array([], dtype=np.int64), 0.2, 1, 0, most=5)[1]) == 0


def test_single_samples_are_given_when_there_is_nothing_else() -> None:
    train, validation = hold_out(np.arange(10), 0.5, seed=1, client=0, labels=np.arange(10))
    assert len(train) == len(validation) == 5


def test_each_client_and_seed_has_its_own_stream() -> None:
    drawn = [hold_out(np.arange(50), 0.5, seed, client)[1].tolist() for seed in (1, 2) for client in (0, 1)]
    assert len({tuple(part) for part in drawn}) == 4
    assert hold_out(np.arange(50), 0.5, 2, 1)[1].tolist() == drawn[3]


def test_training_is_never_emptied() -> None:
    assert [len(part) for part in hold_out(np.array([7]), 0.99, 1, 0)] == [1, 0]
    assert [len(part) for part in hold_out(np.array([], dtype=np.int64), 0.5, 1, 0)] == [0, 0]
    assert [len(part) for part in hold_out(np.arange(1000), np.nextafter(1, 0), 1, 0)] == [1, 999]


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0, float("nan")])
def test_an_impossible_share(share: float) -> None:
    with pytest.raises(UserError, match="from 0 to below 1"):
        hold_out(np.arange(10), share, 1, 0)


@given(
    sizes=st.lists(st.lists(st.integers(0, 30), min_size=3, max_size=3), min_size=1, max_size=5),
    share=st.floats(0.05, 0.9),
    most=st.none() | st.integers(1, 10),
)
@settings(max_examples=80, deadline=None)
def test_judges_are_the_same_share_of_each_client(sizes: list[list[int]], share: float, most: int | None) -> None:
    labels = np.concatenate([np.repeat(np.arange(3), mine) for mine in sizes])
    ends = np.cumsum([0, *map(sum, sizes)])
    parts = [hold_out(np.arange(a, b), share, 1, k, labels, most) for k, (a, b) in enumerate(pairwise(ends))]
    judges = same_share_of_each(parts, 1, labels)
    held = [(len(train) + len(back), back) for train, back in parts]
    least = min(((len(back) + 0.5) / n for n, back in held if len(back)), default=0.0)
    for (n, back), kept in zip(held, judges, strict=True):
        assert set(kept.tolist()) <= set(back.tolist()) and (np.diff(kept) > 0).all()
        assert len(kept) == min(round(least * n), len(back))
        thinned = len(kept) / max(len(back), 1) * np.bincount(labels[back], minlength=3)
        assert (abs(np.bincount(labels[kept], minlength=3) - thinned) < 1).all()  # every class alike, up to one
    if most is None:
        assert all(len(kept) == len(back) for kept, (_, back) in zip(judges, parts, strict=True)), (
            "rounding thins nobody"
        )


def test_rare_classes_judge_as_often_as_they_are_held_back() -> None:
    """A client of 400 and nine times ten samples beside one of 2,000, with a bound: over seeds, nothing is favoured."""
    labels = np.concatenate([np.repeat(np.arange(10), [400, *9 * [10]]), np.zeros(2000, dtype=np.int64)])
    rare = 0
    for seed in range(60):
        parts = [
            hold_out(np.arange(a, b), 0.1, seed, k, labels, 64) for k, (a, b) in enumerate([(0, 490), (490, 2490)])
        ]
        mine = same_share_of_each(parts, seed, labels)[0]
        assert len(mine) == 16
        rare += int((labels[mine] > 0).sum())
    assert rare == pytest.approx(60 * 16 * 9 / 49, rel=0.15)


def test_what_another_client_trained_on_judges_nothing_and_thins_nobody() -> None:
    parts = [(np.arange(10), np.arange(10, 14)), (np.arange(12, 20), np.arange(20, 24))]
    judges = same_share_of_each(parts, 1, np.zeros(24, dtype=np.int64))
    assert judges[0].tolist() == [10, 11] and len(judges[1]) == 2
