"""The validation part of a client's own data."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedshot.errors import UserError
from fedshot.partition import hold_out


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
