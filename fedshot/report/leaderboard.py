"""Every method that ran in a cell (data, partition, clients, epochs) in the order of its mean, with cost and recipe."""

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fedshot.changed import variant
from fedshot.report.agreement import PARTS, recipe_in_words, seeds_in_words
from fedshot.report.comparison import Row, comparison
from fedshot.report.gather import TASK
from fedshot.report.wording import bytes_in_words, number_of, seconds_in_words
from fedshot.study.statistics import ENOUGH_SEEDS, percent

if TYPE_CHECKING:
    from fedshot.record import Record

_CELL = (*TASK, "epochs")
_OF_CELL = ("data", "number of clients", "partition", "local epochs")  # parts of the protocol in the heading of a cell
_HEAD = ("method", "accuracy %", "seeds", "rule", "upload", "clients", "server", "device", "recipe")


def leaderboard(records: Iterable["Record"]) -> str:
    """A table in Markdown for each cell, under a heading that names it; cells in the order of their names."""
    cells: dict[str, dict[str, list[Record]]] = {}
    for record in sorted(records, key=lambda r: (r.spec.data, r.spec.clients, r.spec.alpha, r.spec.epochs)):
        told = record.spec.model_dump(mode="json", exclude={"seed"})
        cell = json.dumps([told[name] for name in _CELL])
        cells.setdefault(cell, {}).setdefault(json.dumps(told, sort_keys=True), []).append(record)
    return "\n\n".join(_table(runs) for runs in cells.values())


def _table(runs: dict[str, list["Record"]]) -> str:
    one = next(iter(runs.values()))[0]
    title = [one.spec.data, number_of(one.spec.clients, "client"), recipe_in_words(one)]
    rows = sorted(comparison(runs).rows, key=lambda row: -row.accuracy.mean)
    lines = [
        f"## {' · '.join([*title, number_of(one.spec.epochs, 'local epoch')])}",
        "",
        f"| {' | '.join(_HEAD)} |",
        f"|{'---|' * len(_HEAD)}",
        *(f"| {' | '.join(_cells(row, runs[row.label]))} |" for row in rows),
    ]
    if few := [row for row in rows if row.accuracy.n < ENOUGH_SEEDS]:
        lines += ["", f"{len(few)} of {number_of(len(rows), 'row')}: fewer than {ENOUGH_SEEDS} seeds, no claim."]
    return "\n".join(lines)


def _cells(row: Row, records: Sequence["Record"]) -> list[str]:
    spec = records[0].spec
    marks = f" ({'; '.join(row.marks)})" if row.marks else ""
    cells = [
        variant(spec.method, spec.options) + marks,
        percent(row.accuracy),
        seeds_in_words(records),
        row.fusion,
        bytes_in_words(row.upload_bytes),
        seconds_in_words(row.client_seconds),
        seconds_in_words(row.server_seconds),
        ", ".join(sorted({record.device for record in records})),
        ", ".join(filter(None, (told(records[0]) for part, told in PARTS.items() if part not in _OF_CELL))),
    ]
    return [cell.replace("|", "\\|") for cell in cells]
