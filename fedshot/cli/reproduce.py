"""`fedshot reproduce`: a research note, run again."""

import json as json_module
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedshot.cli import settings as s

if TYPE_CHECKING:
    from fedshot.notes import Habits, Note, Runs, Scale, Table
    from fedshot.spec import Spec


def reproduce(
    note: Annotated[
        str,
        typer.Argument(
            help="public-feature-bank, why-v10-fails, why-v11-fails, svhn-explosion, improving-fafi or aurora-logs"
        ),
    ],
    scale: Annotated[
        Literal["tiny", "small", "full"],
        typer.Option(
            "--scale", help="tiny: digits, under a minute; small: part of the real data, minutes; full: as told"
        ),
    ] = "small",
    habits: Annotated[
        Literal["sound", "coupled", "published"] | None,
        typer.Option(
            "--habits",
            help="sound: clients train as everywhere in this laboratory; coupled: with all gradients clipped by one "
            "norm; published: also with one draw of views for a batch, momentum anew every round, and images "
            "normalised as the code behind the note did (default: coupled at full scale, else sound)",
        ),
    ] = None,
    device: s.DeviceOption = "auto",
    workers: s.WorkersOption = None,
    lanes: s.LanesOption = None,
    data_root: s.RootOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="folder of the runs (default: runs/reproduce/NOTE-SCALE or NOTE-SCALE-HABITS)"
        ),
    ] = None,
    json: s.JsonOption = False,
) -> None:
    """Run a note's experiment again: its figures beside ours, what it reports as seen or not seen, and the findings.

    **Examples**

    - `fedshot reproduce why-v11-fails --scale tiny` on the embedded digits

    - `fedshot reproduce svhn-explosion` on 5,000 images of SVHN, five clients, the small network

    - `fedshot reproduce why-v10-fails --scale full` the note's own setting, for a GPU

    - `fedshot reproduce svhn-explosion --habits published` trained as the code behind the note trained

    Runs that are finished are kept: the same command goes on where it was interrupted.
    """
    from fedshot.notes import note_of
    from fedshot.notes.note import called, usual_habits

    chosen = note_of(note)
    trained = habits or usual_habits(scale)
    folder = out or Path("runs/reproduce") / called(chosen.name, scale, trained)
    runs = _repeat(chosen.runs(scale, trained), folder, _execution(device, workers, lanes, data_root), json)
    if json:
        typer.echo(json_module.dumps(_as_json(chosen, scale, trained, runs), indent=1))
        return
    _show(chosen, scale, trained, runs)
    typer.echo(f"runs: {folder}")


def _execution(device: str, workers: int | None, lanes: int | None, data_root: Path | None) -> Any:
    from fedshot.experiment import Execution

    count = workers or os.cpu_count() or 1
    return Execution(data_root, s.device_of(device), count, resume=True, lanes=lanes)


def _repeat(specs: "Mapping[str, Spec]", folder: Path, execution: Any, quiet: bool) -> "Runs":
    from fedshot.cli.progress import Progressing
    from fedshot.experiment import run_all
    from fedshot.notes.note import Repeated, folder_of
    from fedshot.store import RunFolder

    folders = {label: folder_of(folder, label) for label in specs}
    with Progressing(list(specs), quiet) as watch:
        outcomes = run_all([(specs[label], folders[label]) for label in specs], execution, watch)
    found = {}
    for label, outcome in zip(specs, outcomes, strict=True):
        if isinstance(outcome, Exception):
            raise outcome
        found[label] = Repeated(outcome, RunFolder(folders[label]))
    return found


def _as_json(note: "Note", scale: "Scale", habits: "Habits", runs: "Runs") -> dict[str, Any]:
    return {
        "note": note.name,
        "setting": note.setting,
        "scale": scale,
        "habits": habits,
        "tables": [asdict(table) for table in note.tables(runs)],
        "phenomena": [asdict(seen) for seen in note.phenomena(runs)],
        "findings": _findings(runs),
        "runs": {label: str(run.folder.path) for label, run in runs.items()},
    }


def _show(note: "Note", scale: "Scale", habits: "Habits", runs: "Runs") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    console.print(note.title, style="bold")
    here = f"scale {scale}, {habits} habits of training"
    console.print(f"the note: {note.setting}; here: {here}", style="dim", markup=False, highlight=False)
    for table in note.tables(runs):
        console.print()
        console.print(table.title, style="italic", markup=False, highlight=False)
        console.print(_rich(table))
    console.print()
    for seen in note.phenomena(runs):
        mark = Text("seen     ", "green") if seen.holds else Text("not seen ", "yellow")
        console.print(mark + Text(f"{seen.claim}: {seen.measured}", "default"))
    console.print()
    console.print("findings (fedshot explain tells more)", style="italic")
    for label, titles in _findings(runs).items():
        for title in titles:
            console.print(f"{label}: {title}", markup=False, highlight=False)


def _findings(runs: "Runs") -> dict[str, list[str]]:
    """What the lab finds in each run by itself, without its mere notes."""
    from fedshot.explain import explain

    found = {label: explain(run.folder.path) for label, run in runs.items()}
    return {label: [f"{f.severity}: {f.title}" for f in each if f.severity != "note"] for label, each in found.items()}


def _rich(table: "Table") -> Any:
    from rich.table import Table as RichTable

    shown = RichTable(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(table.columns):
        shown.add_column(column, justify="left" if index == 0 else "right")
    for row in table.rows:
        shown.add_row(*row)
    return shown
