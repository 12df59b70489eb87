"""What is written about results: cells, runs, ranks and differences as sheets of text, with what to beware of."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fedshot.report.wording import bytes_in_words
from fedshot.study.pivot import HIGHER_IS_BETTER, SHARES, Pivot, PivotCell
from fedshot.study.ranks import Difference, rival_groups
from fedshot.study.results import Results
from fedshot.study.rows import Row
from fedshot.study.sheet import Sheet
from fedshot.study.statistics import ABSENT, ENOUGH_SEEDS, Paired, Ranks, Summary, percent, points

_TRANSDUCTIVE = " *"
_NOTE = "* transductive: reads statistics of all test images."
_SECOND_EXCHANGE = " †"
_EXCHANGE_NOTE = "† needs a second exchange."


def pivot_sheet(pivot: Pivot) -> Sheet:
    """Mean ± deviation in each cell, the best of each column bold, what is not comparable marked."""
    header = (*pivot.row_names, *(_title(pivot, column) for column in pivot.columns))
    most, lines, bold = max(cell.summary.n for cell in pivot.cells.values()), [], set()
    for row in pivot.rows:
        lines.append((*map(_text, row), *(_cell(pivot, pivot.cells.get((row, c)), most) for c in pivot.columns)))
    for place, column in enumerate(pivot.columns):
        bold |= {(pivot.rows.index(best), len(pivot.row_names) + place) for best in pivot.best(column)}
    data = tuple(
        {
            **dict(zip(pivot.row_names, row, strict=True)),
            **dict(zip(pivot.column_names, column, strict=True)),
            "value": pivot.value,
            "mean": cell.summary.mean,
            "std": cell.summary.std,
            "n": cell.summary.n,
            "inductive": cell.inductive,
        }
        for (row, column), cell in pivot.cells.items()
    )
    return Sheet(header, tuple(lines), frozenset(bold), _notes(pivot, most, bool(bold)), data)


def _title(pivot: Pivot, column: Sequence[Any]) -> str:
    pairs = zip(pivot.column_names, column, strict=True)
    return ", ".join(f"{name} {_text(value)}" for name, value in pairs) or pivot.value


def _cell(pivot: Pivot, cell: PivotCell | None, most: int) -> str:
    if cell is None:
        return ABSENT
    marks = ("" if cell.inductive else _TRANSDUCTIVE) + (_SECOND_EXCHANGE if cell.phases > 1 else "")
    return summary_text(cell.summary, pivot.value in SHARES, most) + marks


def summary_text(summary: Summary, share: bool, most: int = 0) -> str:
    """A mean with its deviation; seeds are counted where they are few, or fewer than in other cells.

    >>> summary_text(Summary(0.912, 0.008, 3), share=True), summary_text(Summary(1234.5, None, 1), share=False)
    ('91.2 ± 0.8', '1234 (1 seed)')
    """
    if share:
        text = percent(summary)
    else:
        spread = "" if summary.std is None else f" ± {summary.std:.2g}"
        few = "" if summary.n >= ENOUGH_SEEDS else f" ({summary.n} seed{'s' if summary.n > 1 else ''})"
        text = f"{summary.mean:.4g}{spread}{few}"
    return f"{text} ({summary.n} seeds)" if ENOUGH_SEEDS <= summary.n < most else text


def _notes(pivot: Pivot, most: int, bold: bool) -> tuple[str, ...]:
    unit = ", in percent" if pivot.value in SHARES else ""
    said = {
        f"{pivot.value}{unit}: mean ± sample deviation over seeds, n = {most} where nothing else is said.": most > 1,
        f"{pivot.value}{unit}: 1 seed; a mean needs several.": most == 1,
        "Bold: the best mean of its column among inductive results, over the same seeds.": bold,
        _NOTE: any(not c.inductive for c in pivot.cells.values()),
        _EXCHANGE_NOTE: any(cell.phases > 1 for cell in pivot.cells.values()),
    }
    return tuple(note for note, holds in said.items() if holds)


def flat_sheet(results: Results, columns: Sequence[str]) -> Sheet:
    """A line for each run."""
    lines = [[row.get(column) for column in columns] for row in results.rows]
    body = tuple(tuple(_figure(row, column) for column in columns) for row in results.rows)
    data = tuple(dict(zip(columns, line, strict=True)) for line in lines)
    header = tuple(f"{column} %" if column in SHARES else column.removesuffix("_bytes") for column in columns)
    marked = any(text.endswith(_TRANSDUCTIVE) for line in body for text in line)
    return Sheet(header, body, frozenset(), (_NOTE,) if marked else (), data)


def _figure(row: Row, column: str) -> str:
    """A value of a run; figures of a transductive one are marked."""
    value = row.get(column)
    if column.endswith("_bytes") and isinstance(value, int | float):
        text = bytes_in_words(value)
    else:
        text = _text(value, column in SHARES)
    return text + _TRANSDUCTIVE if column in HIGHER_IS_BETTER and not row["final.inductive"] else text


def rank_sheet(ranks: Ranks, value: str) -> Sheet:
    """Methods by average rank, with the tests in the notes."""
    ordered = sorted(ranks.average.items(), key=lambda pair: pair[1])
    notes = (
        f"Average rank by {value} over {ranks.n} cells; 1 is best.",
        f"Friedman χ² = {ranks.chi_square:.2f}; F = {ranks.f:.2f}, p = {ranks.p:.3g} of no difference at all.",
        f"Nemenyi: two methods differ (5 %) if their ranks are {ranks.critical_difference:.2f} or more apart.",
        *(f"Not told apart: {', '.join(group)}." for group in rival_groups(ranks)),
    )
    if ranks.n < 10:
        notes += (f"{ranks.n} cells are few: the tests are rough below about 10.",)
    shared = {"n": ranks.n, "chi_square": ranks.chi_square, "f": ranks.f if math.isfinite(ranks.f) else None}
    shared |= {"p": ranks.p, "critical_difference": ranks.critical_difference}
    data = tuple({"variant": name, "rank": rank, **shared} for name, rank in ordered)
    return Sheet(("variant", "rank"), tuple((name, f"{rank:.2f}") for name, rank in ordered), frozenset(), notes, data)


def difference_sheet(found: Sequence[Difference], reference: str, value: str) -> Sheet:
    """A line for each method and cell."""
    axes = list(dict.fromkeys(axis for one in found for axis in one.cell))
    percent_points = value in SHARES
    lines = [
        (
            one.variant + (_SECOND_EXCHANGE if one.phases > 1 else ""),
            *(_text(one.cell[axis]) for axis in axes),
            summary_text(one.summary, percent_points),
            _text(one.personal, share=True),
            points(one.paired) if percent_points else _plain(one.paired),
            ABSENT if one.corrected is None else f"{one.corrected:.2g}",
            _more(one.extra["client_seconds"]),
            _more(one.extra["client_bytes"] / 1000),
        )
        for one in found
    ]
    unit = ", in percentage points" if percent_points else ""
    tests = sum(one.corrected is not None for one in found)
    notes = (
        f"Difference in {value} to {reference}{unit}, paired over seeds with the same partition [95 % interval].",
        *([f"p: corrected after Holm, in the family of the {tests} tests shown."] if tests else []),
        "Personal: accuracy of each client's own model on classes as often as it holds them, mean over clients.",
        f"s: seconds of all clients together, kB: what travels to and from a client; both above {reference}.",
        *([_EXCHANGE_NOTE] if any(one.phases > 1 for one in found) else []),
    )
    data = tuple(
        {
            "variant": one.variant,
            **one.cell,
            "reference": reference,
            "value": one.summary.mean,
            "std": one.summary.std,
            "personalised_accuracy": one.personal,
            **asdict(one.paired),
            "p_holm": one.corrected,
            **{f"extra_{name}": amount for name, amount in one.extra.items()},
            "phases": one.phases,
        }
        for one in found
    )
    header = ("variant", *axes, value.removeprefix("final."), "personal", "difference", "p", "s", "kB")
    return Sheet(header, tuple(lines), frozenset(), notes, data)


def _more(amount: float) -> str:
    """An extra cost with its sign.

    >>> _more(1234.56), _more(-0.04), _more(-1.0)
    ('+1,234.6', '0.0', '−1.0')
    """
    if math.isnan(amount):
        return ABSENT
    rounded = round(amount, 1)
    return f"{rounded:+,.1f}".replace("-", "−") if rounded else "0.0"


def _plain(paired: Paired) -> str:
    if paired.mean is None:
        return ABSENT
    if paired.low is None or paired.high is None:
        return f"{paired.mean:+.4g} (1 seed)"
    return f"{paired.mean:+.4g} [{paired.low:+.4g}, {paired.high:+.4g}]"


def _text(value: Any, share: bool = False) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, float):
        return f"{100 * value:.1f}" if share else f"{value:.4g}"
    return "+".join(map(str, value)) if isinstance(value, tuple) else str(value)
