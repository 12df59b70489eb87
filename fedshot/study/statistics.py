"""What several seeds say: mean and spread of one method, paired difference of two, ranks of many; how to write them.

Nothing here invents a spread: with one seed there is a number and the words "1 seed".
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ENOUGH_SEEDS = 3  # fewer than that are named wherever their mean is shown
ABSENT = "–"


@dataclass(frozen=True)
class Summary:
    """Mean and sample deviation over n seeds; no deviation for one seed."""

    mean: float
    std: float | None
    n: int


@dataclass(frozen=True)
class Paired:
    """Mean difference over the n seeds that two methods share, its 95 % t interval, and the p value of no difference.

    Two seeds are the least that give an interval. Without a shared seed there is no mean either.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int
    p: float | None


def summarise(values: Sequence[float]) -> Summary:
    """Mean and sample deviation sqrt( sum (x - mean)^2 / (n - 1) ) of at least one value.

    >>> summarise([0.90, 0.92, 0.94])
    Summary(mean=0.92, std=0.02, n=3)
    >>> summarise([0.90])
    Summary(mean=0.9, std=None, n=1)
    """
    if not values:
        raise ValueError("nothing to summarise: give at least one value")
    mean = _tidy(math.fsum(values) / len(values))
    if len(values) == 1:
        return Summary(mean, None, 1)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return Summary(mean, _tidy(math.sqrt(squares / (len(values) - 1))), len(values))


def paired_difference(a: Mapping[int, float], b: Mapping[int, float]) -> Paired:
    """a - b over the seeds that both have: d̄ ± t(0.975, n-1) s_d / sqrt(n).

    The same seed gives both methods the same partition, initial weights and batches, so what the seeds do to both
    cancels out of each difference. If all differences are equal, t is undefined and p is None.

    Args:
        a: value of each seed.
        b: value of each seed of the method to compare with.

    >>> points(paired_difference({1: 0.83, 2: 0.66, 3: 0.71}, {1: 0.81, 2: 0.63, 3: 0.70, 4: 0.9}))
    '+2.0 [−0.5, +4.5]'
    >>> paired_difference({1: 0.75}, {1: 0.5, 2: 0.5})
    Paired(mean=0.25, low=None, high=None, n=1, p=None)
    """
    from scipy.stats import t

    differences = [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]
    if not differences:
        return Paired(None, None, None, 0, None)
    found = summarise(differences)
    if found.std is None:
        return Paired(found.mean, None, None, 1, None)
    error = found.std / math.sqrt(found.n)
    reach = float(t.ppf(0.975, found.n - 1)) * error
    p = float(2 * t.sf(abs(found.mean) / error, found.n - 1)) if error > 0 else None
    return Paired(found.mean, found.mean - reach, found.mean + reach, found.n, p)


def holm(ps: Sequence[float]) -> list[float]:
    """p values corrected for being a family of m, Holm 1979: p̃(i) = max over j <= i of min(1, (m - j + 1) p(j)).

    p(1) <= p(2) <= … are the given values in ascending order; the corrected ones come back in the order given.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]
    """
    corrected, highest = [0.0] * len(ps), 0.0
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[place]))
        corrected[place] = highest
    return corrected


@dataclass(frozen=True)
class Ranks:
    """Methods over N cells: average ranks, 1 the best, and whether they differ at all."""

    average: dict[str, float]
    n: int
    chi_square: float  # Friedman, k - 1 degrees of freedom
    f: float  # Iman and Davenport, k - 1 and (k - 1)(N - 1) degrees of freedom; infinite for equal orders in all cells
    p: float  # of F; exact where all cells have the same order
    critical_difference: float  # Nemenyi, 5 %


def compare_ranks(values: Mapping[str, Sequence[float]], higher_is_better: bool = True) -> Ranks:
    """Average ranks with the Friedman test and the Nemenyi critical difference, Demšar 2006 (JMLR 7), sections 3.2.2-3.

    With R_j the average rank of method j of k over N cells, ties sharing the mean of their ranks:
    χ² = 12 N / (k (k + 1)) · ( Σ R_j² - k (k + 1)² / 4 ), F = (N - 1) χ² / (N (k - 1) - χ²).

    Where every cell has the same order F is infinite, and p how likely that is if all orders are: (1 / k!)^(N - 1).

    Args:
        values: of each method, the figure of each cell; the same cells in the same order.

    >>> found = compare_ranks({"a": [0.9, 0.8, 0.7], "b": [0.8, 0.7, 0.7], "c": [0.1, 0.2, 0.3]})
    >>> {name: round(rank, 2) for name, rank in found.average.items()}, round(found.chi_square, 2)
    ({'a': 1.17, 'b': 1.83, 'c': 3.0}, 5.17)
    """
    from scipy.stats import f as f_distribution
    from scipy.stats import rankdata

    k, n = len(values), len(next(iter(values.values()), ()))
    if k < 2 or n < 2 or any(len(column) != n for column in values.values()):
        raise ValueError("ranks need two methods or more with figures in the same two cells or more")
    sign = -1.0 if higher_is_better else 1.0
    cells = [rankdata([sign * _tidy(x) for x in cell]) for cell in zip(*values.values(), strict=True)]  # N lists of k
    average = [math.fsum(ranks) / n for ranks in zip(*cells, strict=True)]
    chi = 12 * n / (k * (k + 1)) * (math.fsum(rank**2 for rank in average) - k * (k + 1) ** 2 / 4)
    room = n * (k - 1) - chi
    if room < 1e-9:
        f, p = math.inf, math.factorial(k) ** (1.0 - n)
    else:
        f = (n - 1) * chi / room
        p = float(f_distribution.sf(f, k - 1, (k - 1) * (n - 1)))
    return Ranks(dict(zip(values, average, strict=True)), n, chi, f, p, critical_difference(k, n))


def critical_difference(k: int, n: int) -> float:
    """By how much average ranks of two of k methods over n cells must differ: q(0.05, k) sqrt( k (k + 1) / (6 n) ).

    q is the quantile of the studentised range for infinitely many degrees of freedom, over sqrt(2) (Nemenyi 1963).

    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(0.95, k, math.inf)) / math.sqrt(2)
    return q * math.sqrt(k * (k + 1) / (6 * n))


def percent(summary: Summary, digits: int = 1) -> str:
    """A share in percent, with the number of seeds where it is too small to be left out.

    >>> percent(Summary(0.912, 0.008, 3)), percent(Summary(0.912, 0.008, 2)), percent(Summary(0.912, None, 1))
    ('91.2 ± 0.8', '91.2 ± 0.8 (2 seeds)', '91.2 (1 seed)')
    """
    mean = f"{100 * summary.mean:.{digits}f}"
    if summary.std is None:
        return f"{mean} (1 seed)"
    text = f"{mean} ± {100 * summary.std:.{digits}f}"
    return text if summary.n >= ENOUGH_SEEDS else f"{text} ({summary.n} seeds)"


def points(paired: Paired, digits: int = 1) -> str:
    """A difference of shares in percentage points with its interval.

    >>> points(Paired(0.012, -0.003, 0.027, 3, 0.09))
    '+1.2 [−0.3, +2.7]'
    >>> points(Paired(0.012, None, None, 1, None)), points(Paired(None, None, None, 0, None))
    ('+1.2 (1 seed)', '–')
    """
    if paired.mean is None:
        return ABSENT
    if paired.low is None or paired.high is None:
        return f"{_signed(paired.mean, digits)} (1 seed)"
    text = f"{_signed(paired.mean, digits)} [{_signed(paired.low, digits)}, {_signed(paired.high, digits)}]"
    return text if paired.n >= ENOUGH_SEEDS else f"{text} ({paired.n} seeds)"


def _signed(share: float, digits: int) -> str:
    """Percentage points with their sign; what rounds to zero has none."""
    text = f"{100 * share:+.{digits}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def _tidy(value: float) -> float:
    """Without the last bits, which are rounding: equal values have no spread."""
    return round(value, 12)
