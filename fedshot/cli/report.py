"""`fedshot report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedshot.errors import UserError

if TYPE_CHECKING:
    from fedshot.report.gather import Gathered


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR|RUN|FILE.jsonl[.gz]…", help="folders of runs, comparisons or studies, or kept records"
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="the HTML file (default: report.html in the folder)")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", help="the method that differences are taken to (default: the highest mean)"),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="only runs like these, as `method=fafi|etf,alpha<=0.1`", metavar="QUERY"),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="print tables in Markdown; a page only with --out")
    ] = False,
    standing: Annotated[
        str | None,
        typer.Option(
            "--standing",
            metavar="METHOD",
            help="print how this method stands against the best of the others, cell by cell; with --figures a picture",
        ),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(
            "--records",
            metavar="FILE.jsonl[.gz]",
            help="keep the records in this file, a line each; a page only with --out",
        ),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="also write figures for a paper to this folder")
    ] = None,
    format: Annotated[
        str | None, typer.Option("--format", help="formats of these figures: some of pdf,svg,png (default: pdf,svg)")
    ] = None,
) -> None:
    """Make one HTML file of all finished runs below some folders; it needs no network and can be sent on.

    What cannot be read is named and left out.

    **Examples**

    - `fedshot report runs/compare`

    - `fedshot report runs/digits runs/cifar --baseline fafi --out both.html`

    - `fedshot report runs/compare --figures paper --format pdf,svg`

    - `fedshot report runs/cifar --records results/cifar.jsonl.gz` adds what is new, replaces a run of the same spec

    - `fedshot report results/cifar.jsonl.gz --where "alpha<=0.1" --markdown` tables from kept records

    - `fedshot report runs/map --standing mine.py --figures paper` is mine.py ahead, where, and of what?
    """
    from fedshot.kept import a_collection_in, keep
    from fedshot.report.gather import gather
    from fedshot.report.markdown import tables_in_markdown
    from fedshot.report.paper import parse_formats, write_figures

    if format is not None and figures is None:
        raise UserError("--format is that of the figures for a paper: it does nothing without --figures DIR")
    formats = parse_formats(format or "pdf,svg")
    found = gather(paths, baseline, where=where or ())
    for problem in found.problems:
        typer.echo(f"left out: {problem}", err=True)
    if not found.tasks:
        kept = next((one for path in paths if (one := a_collection_in(path))), None)
        other = f"name its records, as {kept}, or make" if kept else "make"
        raise UserError(f"no finished run in {', '.join(map(str, paths))}: {other} one with `fedshot run` first")
    drawn = 0
    if standing is not None:
        drawn = _stand(found, standing, markdown, figures)
    elif markdown:
        typer.echo(tables_in_markdown(found))
    if records is not None:
        typer.echo(f"records: {keep(records, found.records.values()).in_words()} in {records}", err=markdown)
    if out is not None or not (markdown or records or standing):
        inside = len(paths) == 1 and paths[0].is_dir()
        _page(found, out or (paths[0] / "report.html" if inside else Path("report.html")), quiet=markdown)
    if figures is not None:
        written = write_figures(found.tasks, figures, formats)
        typer.echo(f"figures: {drawn + len(written)} files in {figures}", err=markdown)


def _stand(found: "Gathered", method: str, markdown: bool, figures: Path | None) -> int:
    """Prints the table, and draws it where figures go; how many figures that makes."""
    from rich.console import Console

    from fedshot.report.standing import standings
    from fedshot.report.standing_picture import standing_picture
    from fedshot.report.standing_sheet import standing_sheet
    from fedshot.store import write_atomic
    from fedshot.study.sheet import as_markdown, as_table

    cells = standings(found.records.values(), method)
    sheet = standing_sheet(cells, method)
    if markdown:
        typer.echo(as_markdown(sheet))
    else:
        console = Console()
        console.print(as_table(sheet, console.width))
    if figures is None:
        return 0
    figures.mkdir(parents=True, exist_ok=True)
    write_atomic(figures / "standing.svg", standing_picture(cells, method).encode())
    return 1


def _page(found: "Gathered", place: Path, quiet: bool) -> None:
    """Writes the page; where it lies is told on standard error if tables are printed."""
    from fedshot.report.page import write_report

    named = write_report(found.tasks, found.problems, place)
    for problem in named[len(found.problems) :]:
        typer.echo(f"left out: {problem}", err=True)
    typer.echo(f"report: {place}", err=quiet)
