"""`fedshot results`."""

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedshot.errors import UserError

if TYPE_CHECKING:
    from fedshot.study.results import Results
    from fedshot.study.sheet import Sheet

Format = StrEnum("Format", ["table", "csv", "latex", "markdown", "json"])
_MOST_PROBLEMS = 20  # lines; a study under way has many unfinished runs
_FIGURES = ("final.accuracy", "final.worst_class_accuracy", "clients.upload_bytes", "cost.client_seconds")


def results(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="a folder of runs, studies or comparisons, or kept records (.jsonl, .jsonl.gz)"
        ),
    ],
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="conditions, as `method=fafi|etf,alpha<=0.1`; all must hold", metavar="QUERY"),
    ] = None,
    pivot: Annotated[
        str | None,
        typer.Option(
            "--pivot", help="cells over seeds: `rows=variant,columns=alpha,value=final.accuracy`", metavar="PARTS"
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", help="columns of a line for each run: `variant,alpha,seed,final.accuracy`"),
    ] = None,
    sort: Annotated[str | None, typer.Option("--sort", help="a column; with a minus before it, downwards")] = None,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="average ranks over cells, Friedman test, critical difference")
    ] = False,
    figure: Annotated[
        Path | None, typer.Option("--figure", help="with --ranks: the critical-difference diagram, .svg, .pdf or .png")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="VARIANT", help="paired differences to this method, cell by cell")
    ] = None,
    value: Annotated[
        str | None, typer.Option("--value", help="the figure of --ranks and --against; final.accuracy if not given")
    ] = None,
    format: Annotated[Format, typer.Option("--format", "-f", help="how to write it")] = Format.table,
) -> None:
    """Query finished runs, below a folder or kept in a file.

    **Examples**

    - `fedshot results runs/skew --pivot rows=variant,columns=alpha` mean ± deviation over seeds

    - `fedshot results runs --where "method=fafi|etf,alpha<=0.1" --columns variant,alpha,seed,accuracy --sort -accuracy`

    - `fedshot results runs/skew --pivot rows=variant,columns=alpha --format latex`

    - `fedshot results runs/skew --ranks --figure ranks.pdf`

    - `fedshot results results/map-digits.jsonl.gz --against fafi` kept records in place of folders
    """
    from fedshot.study.results import load_results

    if sum(bool(way) for way in (pivot, columns, ranks, against)) > 1:
        raise UserError("choose one of --pivot, --columns, --ranks and --against")
    if figure and not ranks:
        raise UserError("--figure does nothing without --ranks")
    if value is not None and not (ranks or against):
        raise UserError("--value does nothing without --ranks or --against; --pivot takes it as value=NAME")
    value = value or "final.accuracy"
    found = load_results(path)
    for problem in found.problems[:_MOST_PROBLEMS]:
        print(f"fedshot: left out: {problem}", file=sys.stderr)
    if (more := len(found.problems) - _MOST_PROBLEMS) > 0:
        print(f"fedshot: left out: {more} more", file=sys.stderr)
    for query in where or []:
        found = found.some_where(query)
    found = found.sort(sort) if sort else found
    if ranks:
        sheet = _ranks(found, found.column(value), figure)
    elif against:
        sheet = _differences(found, against, found.column(value))
    else:
        sheet = _runs(found, pivot, columns, full=format in (Format.csv, Format.json))
    _print(sheet, format)


def _runs(found: "Results", pivot: str | None, columns: str | None, full: bool) -> "Sheet":
    from fedshot.study.query import names, parse_pivot
    from fedshot.study.results import TOGETHER
    from fedshot.study.tables import flat_sheet, pivot_sheet

    if pivot:
        return pivot_sheet(found.pivot(*parse_pivot(pivot)))
    if columns:
        return flat_sheet(found, [found.column(name) for name in names(columns)])
    if full:
        return flat_sheet(found, found.columns)
    differing = [name for name in found.varying() if name != "method" and not name.startswith("option.")]
    telling, implied = _telling(found, differing)
    rare = found.rarely_changed(telling)
    if len(rare) > 1:  # columns that are nearly empty leave no room for the others
        found, telling = found.together(rare), [*(name for name in telling if name not in rare), TOGETHER]
    sheet = flat_sheet(found, ["variant", *telling, "seed", *_FIGURES])
    notes = [f"{name} also sets apart: {', '.join(others)} (--columns shows them)" for name, others in implied.items()]
    return replace(sheet, notes=(*sheet.notes, *notes))


def _telling(found: "Results", names: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """The columns that say something that no earlier one of them does, and under each the others that it decides."""
    telling, implied = list[str](), dict[str, list[str]]()
    for name in names:
        known = next((one for one in telling if _decides(found, one, name)), None)
        if known is None:
            telling.append(name)
        else:
            implied.setdefault(known, []).append(name)
    return telling, implied


def _decides(found: "Results", one: str, other: str) -> bool:
    """Whether runs that are alike in one column are alike in the other."""
    pairs = {(repr(row.get(one)), repr(row.get(other))) for row in found.rows}
    return len(pairs) == len({first for first, _ in pairs})


def _ranks(found: "Results", value: str, figure: Path | None) -> "Sheet":
    from fedshot.study.diagram import save_diagram
    from fedshot.study.ranks import rank
    from fedshot.study.tables import rank_sheet

    ranks = rank(found, value)
    if figure:
        save_diagram(ranks, figure)
    return rank_sheet(ranks, value)


def _differences(found: "Results", reference: str, value: str) -> "Sheet":
    from fedshot.study.ranks import differences
    from fedshot.study.tables import difference_sheet

    return difference_sheet(differences(found, reference, value), reference, value)


def _print(sheet: "Sheet", format: Format) -> None:
    from fedshot.study.sheet import TEXTS, as_table

    if format is Format.table:
        from rich.console import Console

        console = Console()
        console.print(as_table(sheet, console.width))
    else:
        typer.echo(TEXTS[format.value](sheet))
