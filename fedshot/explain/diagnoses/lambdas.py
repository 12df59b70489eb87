"""What the diagnoses of λ read: the epochs in which a learned weight acted, and its columns as series."""

from collections.abc import Sequence

from fedshot.explain.finding import Series
from fedshot.explain.run import Row, complete

Numbers = dict[str, float]

GROWTH = 10.0  # a tenfold λ changes which loss rules, and the equilibria of V10 and V14 do not grow at all
FEWEST_EPOCHS = 5  # fewer say nothing about a trend
_LEARNED = ("lambda_raw", "lambda_effective", "lambda_equilibrium", "sigma_local", "sigma_align", "attenuation")


def learned(rows: Sequence[Row]) -> list[Numbers]:
    """The epochs in which a learned λ acted, with everything about it; none for a λ that is given."""
    known = complete(rows, *_LEARNED, "base_loss", "align_loss")
    return [row for row in known if min(row[name] for name in (*_LEARNED, "base_loss", "align_loss")) > 0]


def path(label: str, rows: Sequence[Numbers], name: str, log: bool = True) -> Series:
    """One column over the epochs."""
    return Series(label, tuple(int(row["epoch"]) for row in rows), tuple(row[name] for row in rows), log)
