"""`fedshot explain`: what records, telemetry and uploads show, with evidence, cause and what to try."""

import json as json_module
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedshot.cli.settings import JsonOption
from fedshot.errors import UserError


def explain(
    path: Annotated[Path, typer.Argument(metavar="RUN|DIR", help="the folder of a run, or one that holds runs")],
    severity: Annotated[
        Literal["severe", "warning", "note"],
        typer.Option("--severity", help="the least severity that is shown: severe, warning or note"),
    ] = "note",
    html: Annotated[Path | None, typer.Option("--html", help="write one self-contained page instead")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="write Markdown instead")] = None,
    json: JsonOption = False,
) -> None:
    """Say what went wrong in a run, and why: a λ that explodes, cancelled annealing, clients that hardly trained …

    A finding has a severity, the numbers that triggered it with their thresholds, the mechanism with its formula, and a
    command to try. Where the numbers do not suffice nothing is said. For a folder: every run, up to a dozen, then
    what holds across all of them.

    **Examples**

    - `fedshot explain runs/RUN` one run, the worst first

    - `fedshot explain runs/results --severity warning` a folder of runs, without notes

    - `fedshot explain runs/results --html findings.html` a page to hand on; `--json` for programs

    What is damaged, unfinished or of another version is named and left out; the rest is explained, and exit status 2 if
    nothing is left. docs/explain.md has each finding with its formula and thresholds.
    """
    from fedshot.explain import explain_path
    from fedshot.explain.show import as_html, as_json, as_markdown, as_text, selected
    from fedshot.store import write_atomic

    for file in (html, markdown):
        if file is not None and file.is_dir():
            raise UserError(f"{file} is a folder: give the name of a file, such as {file / 'findings.html'}")
    found = selected(explain_path(path), severity)
    for file, form in ((html, as_html), (markdown, as_markdown)):
        if file is not None:
            write_atomic(file, form(found).encode())
            typer.echo(f"written to {file}", err=True)
    if json:
        typer.echo(json_module.dumps(as_json(found), indent=1, ensure_ascii=False, allow_nan=False))
    elif html is None and markdown is None:
        from rich.console import Console

        Console(highlight=False).print(as_text(found), crop=False)
    if not found.runs:
        raise typer.Exit(2)
