"""Methods across data sets, α and numbers of clients: one table of means, a column for each such cell."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedshot.report.gather import TASK
from fedshot.report.protocol import protocol_in_words
from fedshot.study.results import TOGETHER, Results
from fedshot.study.rows import Row, row_of
from fedshot.study.sheet import Sheet
from fedshot.study.statistics import ABSENT
from fedshot.study.tables import difference_sheet, pivot_sheet

if TYPE_CHECKING:
    from fedshot.record import Record

Found = Mapping[Path, "Record"]  # records by the places where they lie


def across(found: Found) -> Sheet:
    """Mean accuracies: a row for each method, a column for each data set, partition and number of clients that occurs.

    Where a method ran under several rules, or otherwise several times in a cell, the rows tell these apart too.
    """
    results = _in_order(found)
    axes = [name for name in TASK if name in results.varying()]
    results, heads, told = _rows(results, axes)
    pivot = results.pivot(heads, axes)
    pivot = replace(pivot, columns=tuple(sorted(pivot.columns, key=lambda column: [(v is None, v) for v in column])))
    return _with_protocol(pivot_sheet(pivot), found, results, heads, told, axes)


def against(found: Found, reference: str) -> Sheet:
    """Paired differences in accuracy of all methods to one of them, cell by cell."""
    from fedshot.study.ranks import differences

    results = _in_order(found)
    axes = [name for name in TASK if name in results.varying()]
    sheet = difference_sheet(differences(results, reference), reference, "final.accuracy")
    return _with_protocol(sheet, found, *_rows(results, axes), axes)


def _in_order(found: Found) -> Results:
    """Rows in the order of METHODS, those of a user's own files last, a method's plain form before its variants."""
    from fedshot.methods import METHODS

    methods = list(METHODS)

    def key(row: Row) -> tuple[object, ...]:
        method = row["method"]
        return methods.index(method) if method in METHODS else len(methods), by_number(row["variant"]), row["seed"]

    return Results(tuple(sorted((row_of(record, place) for place, record in found.items()), key=key)))


def by_number(text: str) -> list[tuple[float, str]]:
    """To sort texts by, numbers in them by their size.

    >>> sorted(["etf:weight=10", "etf:weight=3", "etf", "etf:weight=1e-06"], key=by_number)
    ['etf', 'etf:weight=1e-06', 'etf:weight=3', 'etf:weight=10']
    """
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)|([^0-9]+)", text)
    return [(float(number or 0), words) for number, words in parts]


def _rows(results: Results, axes: Sequence[str]) -> tuple[Results, list[str], list[str]]:
    """What heads a row: the method, and what else tells its runs in one cell apart, the rule before other settings.

    Several such settings share a column, in which only what was changed is said. Returns the results with that column,
    the columns that head a row, and the settings that these tell.
    """
    told = _telling_apart(results, axes)
    heads = [name for name in told if name in ("variant", "fusion")]
    others = [name for name in told if name not in heads]
    if len(others) < 2:
        return results, told, told

    results = results.together(others)
    variants = list(dict.fromkeys(row["variant"] for row in results.rows))

    def key(row: Row) -> tuple[int, str, int]:
        return variants.index(row["variant"]), row[TOGETHER] or "", row["seed"]

    return replace(results, rows=tuple(sorted(results.rows, key=key))), [*heads, TOGETHER], told


def _telling_apart(results: Results, axes: Sequence[str]) -> list[str]:
    """The method, and as few further settings as tell its runs in one cell apart; the rule is asked first."""
    names, varying = ["variant"], results.varying()
    while True:
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in results.rows:
            groups.setdefault(tuple(repr(row.get(name)) for name in (*names, *axes)), []).append(row)
        mixed = [
            name
            for name in sorted(varying, key=lambda name: name != "fusion")
            if any(len({repr(row.get(name)) for row in group}) > 1 for group in groups.values())
        ]
        if not mixed:
            return names
        names.append(mixed[0])


def _with_protocol(
    sheet: Sheet, found: Found, results: Results, heads: Sequence[str], told: Sequence[str], axes: Sequence[str]
) -> Sheet:
    """The sheet with the protocol of its runs below it.

    Args:
        heads: the columns that head a row.
        told: the settings that these tell.
    """
    records = {str(place): record for place, record in found.items()}
    cells: dict[tuple[str, tuple[object, ...]], list[Record]] = {}
    for row in results.rows:
        label = " · ".join(ABSENT if row.get(name) is None else str(row[name]) for name in heads)
        column = tuple(row.get(name) for name in axes)
        cells.setdefault((label, column), []).append(records[row["run"]])
    return replace(sheet, notes=(*sheet.notes, protocol_in_words(cells, axes, told)))
