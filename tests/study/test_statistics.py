import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedshot.study.statistics import Paired, Summary, paired_difference, percent, points, summarise

SHARES = st.floats(0, 1, allow_nan=False)


@given(st.lists(SHARES, min_size=2, max_size=8))
def test_mean_and_sample_deviation_are_those_of_a_naive_loop(values):
    mean = sum(values) / len(values)
    found = summarise(values)
    assert found.n == len(values)
    assert found.mean == pytest.approx(mean, abs=1e-9)
    assert found.std == pytest.approx(math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1)), abs=1e-9)


def test_soundness_11_one_seed_is_called_one_seed():
    alone = summarise([0.912])
    assert alone.std is None, "a spread of zero would claim certainty"
    assert percent(alone) == "91.2 (1 seed)"
    pair = paired_difference({1: 0.9}, {1: 0.8})
    assert (pair.low, pair.high, pair.p) == (None, None, None)
    assert points(pair) == "+10.0 (1 seed)"


def test_soundness_11_two_seeds_are_named_and_three_are_not():
    assert percent(summarise([0.90, 0.92])) == "91.0 ± 1.4 (2 seeds)"
    assert percent(summarise([0.90, 0.92, 0.94])) == "92.0 ± 2.0"


def test_soundness_11_differences_are_paired_by_seed():
    a = {1: 0.85, 2: 0.66, 3: 0.71, 9: 0.0}
    b = {3: 0.70, 1: 0.82, 2: 0.64, 7: 1.0}
    found = paired_difference(a, b)
    expected = stats.ttest_rel([0.85, 0.66, 0.71], [0.82, 0.64, 0.70])
    interval = expected.confidence_interval(0.95)
    assert found.n == 3
    assert found.mean == pytest.approx(0.02)
    assert (found.low, found.high) == (pytest.approx(interval.low), pytest.approx(interval.high))
    assert found.p == pytest.approx(expected.pvalue)


def test_pairing_removes_what_the_seed_does_to_both():
    spread = {1: 0.2, 2: 0.5, 3: 0.8}
    shifted = {seed: value + 0.01 + 0.001 * seed for seed, value in spread.items()}
    pair = paired_difference(shifted, spread)
    assert pair.low is not None and pair.low > 0, "0.3 of spread between seeds must not hide a steady difference"


@given(st.dictionaries(st.integers(1, 6), SHARES), st.dictionaries(st.integers(1, 6), SHARES))
def test_the_difference_changes_its_sign_with_the_order(a, b):
    there, back = paired_difference(a, b), paired_difference(b, a)
    assert there.n == back.n == len(a.keys() & b.keys())
    if there.mean is not None:
        assert there.mean == pytest.approx(-back.mean)
    if there.low is not None:
        assert there.low == pytest.approx(-back.high)


def test_equal_differences_leave_p_unsaid():
    pair = paired_difference({1: 0.7, 2: 0.8}, {1: 0.6, 2: 0.7})
    assert (pair.mean, pair.low, pair.high, pair.p) == (
        pytest.approx(0.1),
        pytest.approx(0.1),
        pytest.approx(0.1),
        None,
    )


def test_without_a_shared_seed_nothing_is_claimed():
    assert paired_difference({1: 0.7}, {2: 0.6}) == Paired(None, None, None, 0, None)
    assert points(Paired(None, None, None, 0, None)) == "–"


def test_nothing_has_no_mean():
    with pytest.raises(ValueError, match="at least one"):
        summarise([])


def test_what_rounds_to_zero_has_no_sign():
    assert points(Paired(-0.0001, -0.012, 0.0118, 3, 0.9)) == "0.0 [−1.2, +1.2]"


def test_digits_are_a_choice():
    assert percent(Summary(0.91234, 0.00567, 3), digits=2) == "91.23 ± 0.57"
