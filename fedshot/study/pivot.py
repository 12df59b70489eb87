"""Cells of runs that differ in nothing but the seed: mean, deviation, and which of them is the best."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedshot.errors import UserError
from fedshot.study.statistics import Summary, summarise

if TYPE_CHECKING:
    from fedshot.study.results import Results, Row

Key = tuple[Any, ...]
MOST_COLUMNS = 6  # of a table in a terminal; more become rows
HIGHER_IS_BETTER = {
    "final.accuracy": True,
    "final.balanced_accuracy": True,
    "final.worst_class_accuracy": True,
    "final.personalised_accuracy": True,
    "final.nll": False,
    "final.calibration_error": False,
    "held_out.accuracy": True,
    "held_out.balanced_accuracy": True,
    "held_out.nll": False,
}  # the figures of the last evaluation point, on test and on held-out images; nothing else has a best
SHARES = {
    *(name for name in HIGHER_IS_BETTER if not name.endswith(".nll")),
    "final.oracle_routing",
    "clients.accuracy_alone",
    "clients.best_alone",
    "partition.overlap",
}


@dataclass(frozen=True)
class PivotCell:
    """The runs of one combination, over their seeds."""

    summary: Summary
    seeds: tuple[int, ...]
    inductive: bool
    phases: int


@dataclass(frozen=True)
class Pivot:
    """Cells by row and column key; a combination without runs has none."""

    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    value: str
    rows: tuple[Key, ...]
    columns: tuple[Key, ...]
    cells: dict[tuple[Key, Key], PivotCell]

    def best(self, column: Key) -> list[Key]:
        """The rows of the best mean among inductive cells of a column; several if they are equal.

        There is none where fewer than two can be compared, where all are equal, where the seeds differ, as some are
        easier than others, or for a value that is no figure of the last evaluation point.
        """
        found = {row: cell for row in self.rows if (cell := self.cells.get((row, column))) and cell.inductive}
        if self.value not in HIGHER_IS_BETTER or len(found) < 2 or len({cell.seeds for cell in found.values()}) > 1:
            return []
        sign = 1 if HIGHER_IS_BETTER[self.value] else -1
        highest = max(sign * cell.summary.mean for cell in found.values())
        best = [row for row, cell in found.items() if sign * cell.summary.mean == highest]
        return best if len(best) < len(found) else []


def make_pivot(results: "Results", rows: Sequence[str], columns: Sequence[str], value: str) -> Pivot:
    """The cells of some results. One whose runs differ in more than the seed is refused: its mean would say nothing."""
    groups: dict[tuple[Key, Key], list[Row]] = {}
    for row in results.with_number(value).rows:
        place = tuple(row.get(name) for name in rows), tuple(row.get(name) for name in columns)
        groups.setdefault(place, []).append(row)
    for found in groups.values():
        if mixed := results.varying(found):
            several = ", ".join(dict.fromkeys(str(row.get(mixed[0])) for row in found))
            raise UserError(
                f"a cell would mix runs that differ in {' and '.join(mixed)} ({several}): add it to rows or columns, "
                f"or choose with --where"
            )
        seeds = [row["seed"] for row in found]
        if twice := [row["run"] for row in found if seeds.count(row["seed"]) > 1]:
            raise UserError(f"a cell would hold one seed twice ({twice[0]} and {twice[1]}): choose with --where")
    return Pivot(
        tuple(rows),
        tuple(columns),
        value,
        tuple(dict.fromkeys(row for row, _ in groups)),
        tuple(dict.fromkeys(column for _, column in groups)),
        {place: _cell(found, value) for place, found in groups.items()},
    )


def _cell(found: "Sequence[Row]", value: str) -> PivotCell:
    return PivotCell(
        summarise([float(row[value]) for row in found]),
        tuple(sorted(row["seed"] for row in found)),
        all(row["final.inductive"] for row in found),
        max(row["final.phases"] for row in found),
    )
