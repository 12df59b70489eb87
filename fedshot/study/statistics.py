"""What several seeds say: mean and spread of one method, paired difference of two, and how to write them down.

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
