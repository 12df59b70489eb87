"""Finished runs as flat rows: what was asked, what came out, what it cost. To query, to pivot, to export."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedshot.changed import usual_settings, words_of
from fedshot.errors import UserError, unknown
from fedshot.kept import a_collection_in, records_at
from fedshot.study.grid import OPTION, SETTINGS
from fedshot.study.query import Condition, known_values, parse_where
from fedshot.study.rows import HELD_OUT, READ_BY_SOME, Row, row_of

if TYPE_CHECKING:
    from fedshot.study.pivot import Pivot

TOGETHER = "settings"  # the column that several settings may share


@dataclass(frozen=True)
class Results:
    """Rows, one for each run, and what was found but could not be read.

    Columns: `run` (its folder), `variant` (the method with the options that are not at their default; one in a file
    with all), the settings of the run by their names, `content` of the files that it read, `option.NAME`, `final.NAME`,
    `held_out.NAME`, `cost.NAME`, `clients.NAME`, `partition.NAME`. The last part of a name is enough where it is
    unambiguous; what `final` has too is meant of `final`.
    """

    rows: tuple[Row, ...]
    problems: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for row in self.rows for name in row))

    def column(self, name: str) -> str:
        """The full name of a column."""
        if name in self.columns:
            return name
        ending = [full for full in self.columns if full.endswith(f".{name}")]
        ending = [full for full in ending if full == f"final.{name}"] or ending
        if len(ending) == 1:
            return ending[0]
        if ending:
            raise UserError(f"{name!r} is ambiguous: write {' or '.join(ending)}")
        raise unknown("column", name, self.columns)

    def where(self, query: str) -> "Results":
        """The rows for which all conditions hold, as in "method=fafi|etf,alpha<=0.1,final.accuracy>0.5"."""
        conditions = [replace(found, column=self.column(found.column)) for found in parse_where(query)]
        return replace(self, rows=tuple(row for row in self.rows if all(_holds(c, row) for c in conditions)))

    def some_where(self, query: str) -> "Results":
        """The same; where none are left, the condition that leaves none is refused, with what there is."""
        left = self
        for typed in parse_where(query):
            kept = left.where(typed.text)
            if left.rows and not kept.rows:
                condition = replace(typed, column=self.column(typed.column))
                there = known_values(condition, [row.get(condition.column) for row in left.rows])
                raise UserError(f"no run here satisfies {typed.text}: {there}")
            left = kept
        return left

    def with_number(self, column: str) -> "Results":
        """The rows that have a number in a column; refused if that is none."""
        kept = tuple(row for row in self.rows if isinstance(row.get(column), int | float))
        if not kept and column.startswith(HELD_OUT):
            raise UserError(
                f"no run has {column}: train with --validation 0.1. Runs that held images back before records had it "
                "get it by their own command once record.json is deleted; nothing is trained again"
            )
        if not kept:
            raise UserError(f"no run has a number in {column}: choose another value")
        return replace(self, rows=kept)

    def sort(self, name: str) -> "Results":
        """By a column, upwards, or downwards with a minus before its name. Rows without a value come last."""
        column, down = self.column(name.removeprefix("-")), name.startswith("-")
        known = [row for row in self.rows if row.get(column) is not None]
        numbers = all(isinstance(row[column], int | float) for row in known)
        key: Callable[[Row], Any] = (lambda row: row[column]) if numbers else (lambda row: str(row[column]))
        rest = [row for row in self.rows if row.get(column) is None]
        return replace(self, rows=(*sorted(known, key=key, reverse=down), *rest))

    def pivot(
        self, rows: Sequence[str] = ("variant",), columns: Sequence[str] = (), value: str = "final.accuracy"
    ) -> "Pivot":
        """Mean and deviation over seeds of a value, a cell for each combination of row and column names."""
        from fedshot.study.pivot import make_pivot

        return make_pivot(self, [self.column(n) for n in rows], [self.column(n) for n in columns], self.column(value))

    def varying(self, rows: Sequence[Row] | None = None) -> tuple[str, ...]:
        """Settings and options, apart from the seed, that are not the same in all of the rows; and content of files."""
        known = ("method", *SETTINGS, "content")
        asked = [name for name in self.columns if name in known or name.startswith(OPTION)]
        given = self.rows if rows is None else rows
        return tuple(name for name in asked if len({repr(row.get(name)) for row in given}) > 1)

    def together(self, names: Sequence[str]) -> "Results":
        """The rows with one column more, `settings`: those of some settings that are not the method's own, as typed."""

        def told(row: Row) -> str | None:
            return ", ".join(f"{name}={words_of(row.get(name))}" for name in names if _is_changed(row, name)) or None

        return replace(self, rows=tuple({**row, TOGETHER: told(row)} for row in self.rows))

    def rarely_changed(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of some settings that most rows have as it is usual for their method; the rule is none of them."""
        asked, most = [name for name in names if name in SETTINGS and name != "fusion"], len(self.rows) / 2
        return tuple(name for name in asked if sum(_is_changed(row, name) for row in self.rows) < most)

    def to_pandas(self) -> Any:
        """A pandas DataFrame of the rows."""
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise UserError("to_pandas needs pandas, which is not installed: pip install pandas") from None
        return pandas.DataFrame(list(self.rows), columns=list(self.columns))


def _is_changed(row: Row, name: str) -> bool:
    """Whether a run has something else there than it would have if nothing were typed."""
    unread = name in READ_BY_SOME and row.get(name) is None
    return not unread and usual_settings(row["method"], row["data"]).get(name) != row.get(name)


def load_results(path: Path | str) -> Results:
    """All finished runs below a folder, or the records of a collection. What cannot be read is in `problems`."""
    path, rows, problems = Path(path), dict[str, Row](), []
    for place, read in records_at(path):
        try:
            found = read()
        except UserError as error:
            problems.append(str(error))
            continue
        row = rows.setdefault(found.spec.sha256, row_of(found, place))  # the same run in two folders counts once
        if row["result_sha256"] != found.result_sha256:
            problems.append(f"{place}: the same run as {row['run']}, with another result")
    folders = sorted(file.parent for file in path.rglob("spec.json")) if path.is_dir() else []
    problems += [f"{folder}: the run is not finished" for folder in folders if not (folder / "record.json").exists()]
    if not rows:
        seen = f": {problems[0]}" if problems else ""
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        kept = f"name its records, as {one}, or make" if (one := a_collection_in(path)) else "make"
        raise UserError(f"there is no finished run in {path}{seen}{more}: {kept} one with fedshot run or fedshot study")
    return Results(tuple(sorted(rows.values(), key=_order)), tuple(problems))


def _order(row: Row) -> list[tuple[int, Any]]:
    """By variant, settings, content of files and seed; numbers come in their order, before words."""
    values = [row["variant"], *(row[name] for name in SETTINGS), row["content"], row["seed"]]
    return [(0, value) if isinstance(value, int | float) else (1, str(value)) for value in values]


def _holds(condition: Condition, row: Row) -> bool:
    value = row.get(condition.column)
    if condition.column == "method":
        from fedshot.methods import canonical

        return replace(condition, wanted=tuple(canonical(name) for name in condition.wanted)).holds(value)
    return condition.holds(None if isinstance(value, float) and math.isnan(value) else value)
