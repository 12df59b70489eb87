"""`fedshot report`."""

from pathlib import Path
from typing import Annotated

import typer

from fedshot.errors import UserError


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="DIR|RUN…", help="folders of runs, comparisons or studies"),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="the HTML file (default: report.html in the folder)")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", help="the method that differences are taken to (default: the highest mean)"),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option("--figures", help="also write figures for a paper to this folder")
    ] = None,
    format: Annotated[str, typer.Option("--format", help="formats of these figures: some of pdf,svg,png")] = "pdf,svg",
) -> None:
    """Make one HTML file of all finished runs below some folders; it needs no network and can be sent on.

    What cannot be read is named and left out.

    **Examples**

    - `fedshot report runs/compare`

    - `fedshot report runs/digits runs/cifar --baseline fafi --out both.html`

    - `fedshot report runs/compare --figures paper --format pdf,svg`
    """
    from fedshot.report.gather import gather
    from fedshot.report.page import write_report
    from fedshot.report.paper import parse_formats, write_figures

    formats = parse_formats(format)
    found = gather(paths, baseline)
    problems = [*found.problems]
    for problem in problems:
        typer.echo(f"left out: {problem}", err=True)
    if not found.tasks:
        raise UserError(f"no finished run in {', '.join(map(str, paths))}: make one with `fedshot run` first")
    place = out or (paths[0] / "report.html" if len(paths) == 1 and paths[0].is_dir() else Path("report.html"))
    named = write_report(found.tasks, problems, place)
    for problem in named[len(problems) :]:
        typer.echo(f"left out: {problem}", err=True)
    typer.echo(f"report: {place}")
    if figures is not None:
        written = write_figures(found.tasks, figures, formats)
        typer.echo(f"figures: {len(written)} files in {figures}")
