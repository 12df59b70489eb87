"""The protocol of a table in one line, read off the specs: what all runs share, and which row differs in what."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedshot.report.agreement import PARTS, further_in_words, seeds_in_words
from fedshot.study.statistics import ABSENT

if TYPE_CHECKING:
    from fedshot.record import Record

Column = tuple[Any, ...]
Cells = Mapping[tuple[str, Column], Sequence["Record"]]  # the runs of each row and column, one for each seed
_SAID_BY = {
    "data": "data",
    "clients": "number of clients",
    "epochs": "local epochs",
    "encoder": "encoder",
    "pretrained": "weights to start from",
    "batch_size": "batch size",
    "public": "public images",
    "validation": "validation share",
    "precision": "precision",
}  # settings whose value says a part in full, where it heads a row or a column


def protocol_in_words(cells: Cells, axes: Sequence[str] = (), heads: Sequence[str] = ()) -> str:
    """Every part of the protocol once, with its exceptions in brackets.

    Args:
        cells: the runs behind a table.
        axes: the settings that its columns differ in, in the order of a column's values; none for one column.
        heads: the settings that stand at the head of its rows.
    """
    said = {_SAID_BY[name] for name in (*axes, *heads) if name in _SAID_BY}
    parts = {name: _of_all(tell) for name, tell in PARTS.items() if name not in said}
    parts["further settings"] = _of_all(lambda record: further_in_words(record, heads))
    if "alpha" in axes:
        parts["partition"] = _of_all(lambda record: str(record.partition["recipe"]))
    parts["seeds"] = seeds_in_words
    told = [_part(cells, axes, name, tell) for name, tell in parts.items()]
    return f"Protocol: {' · '.join(filter(None, told))} · evaluated after the last epoch."


def _of_all(tell: Callable[["Record"], str]) -> Callable[[Sequence["Record"]], str]:
    return lambda records: " or ".join(sorted({tell(record) for record in records}))


def _part(cells: Cells, axes: Sequence[str], name: str, tell: Callable[[Sequence["Record"]], str]) -> str:
    """What most rows of each column have, then the rows that have something else."""
    values = {place: tell(records) for place, records in cells.items()}
    columns = list(dict.fromkeys(column for _, column in values))
    usual = {c: Counter(v for (_, column), v in values.items() if column == c).most_common(1)[0][0] for c in columns}
    exceptions: dict[str, dict[str, list[Column]]] = {}  # value -> row -> columns
    for (row, column), value in values.items():
        if value != usual[column]:
            exceptions.setdefault(value, {}).setdefault(row, []).append(column)
    told = [
        f"{', '.join(_row(row, places, cells, axes) for row, places in rows.items())}: {value or 'none'}"
        for value, rows in exceptions.items()
    ]
    shared = _by_column(usual, axes)
    return f"{shared or f'{name}: none'} ({'; '.join(told)})" if told else shared


def _row(row: str, places: Sequence[Column], cells: Cells, axes: Sequence[str]) -> str:
    """A row, with the columns in which it differs where these are not all that it has."""
    everywhere = [column for name, column in cells if name == row]
    return row if len(places) == len(everywhere) else f"{row} at {'; '.join(_named(c, axes) for c in places)}"


def _by_column(usual: Mapping[Column, str], axes: Sequence[str]) -> str:
    """A value for all columns, or each value with the columns that have it, named by one axis where that is enough."""
    if len(set(usual.values())) <= 1:
        return next(iter(usual.values()), "")
    names = {column: _named(column, axes) for column in usual}
    for place, axis in enumerate(axes):
        if len({(column[place], value) for column, value in usual.items()}) == len({column[place] for column in usual}):
            names = {column: _named((column[place],), [axis]) for column in usual}
            break
    by_value: dict[str, dict[str, None]] = {}
    for column, value in usual.items():
        by_value.setdefault(value or "none", {})[names[column]] = None
    return ", ".join(f"{value} ({'; '.join(where)})" for value, where in by_value.items())


def _named(column: Column, axes: Sequence[str]) -> str:
    """A column in short; what its division does not read is left out.

    >>> _named(("cifar10", 0.05, 10), ["data", "alpha", "clients"]), _named(("iid", None), ["recipe", "alpha"])
    ('cifar10, α = 0.05, 10 clients', 'recipe iid')
    """
    words = {"data": "{}", "alpha": "α = {:g}", "clients": "{} clients"}
    told = [(axis, value) for axis, value in zip(axes, column, strict=True) if value is not None]
    return ", ".join(words.get(axis, axis + " {}").format(value) for axis, value in told) or ABSENT
