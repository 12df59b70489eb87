"""`fedshot study`."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedshot.cli import settings as s
from fedshot.errors import UserError

if TYPE_CHECKING:
    from fedshot.experiment import Execution
    from fedshot.study.plan import Planned
    from fedshot.study.recipe import Recipe
    from fedshot.study.runner import Outcome


def study(
    source: Annotated[
        str,
        typer.Argument(
            metavar="STUDY", help="`notes-plan`, FILE.yaml, FILE.py, FILE.py:function or package.module:function"
        ),
    ],
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="another value, or several, for a setting of the study, repeatable: `data=cifar10`, `seeds=1,2`",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="folder of the runs; studies may share one (default: runs/NAME)")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only say how many runs are left, and what they would cost")
    ] = False,
    device: s.DeviceOption = "auto",
    workers: s.WorkersOption = None,
    lanes: s.LanesOption = None,
    data_root: s.RootOption = None,
    slurm: Annotated[
        bool,
        typer.Option(
            "--slurm", help="submit one SLURM job for each run, or for all that share their clients, and return"
        ),
    ] = False,
    slurm_array: Annotated[bool, typer.Option("--slurm-array", help="the same as one job array")] = False,
    slurm_set: Annotated[
        list[str] | None,
        typer.Option(
            "--slurm-set", metavar="KEY=VALUE", help="for submitit, repeatable: `timeout_min=60`, `gpus_per_node=1`"
        ),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option("--track", help="give finished runs to `tensorboard`, `wandb` or `mlflow`, repeatable"),
    ] = None,
    json: s.JsonOption = False,
) -> None:
    """Run a grid of methods, data, settings and seeds; the same command again goes on where it was stopped.

    **Examples**

    - `fedshot study examples/skew.yaml --dry-run` how many runs, how long, how many bytes

    - `fedshot study examples/skew.yaml --out runs/skew` runs them; finished runs are never repeated

    - `fedshot study examples/skew.yaml --slurm --device cuda --slurm-set timeout_min=60`

    - `fedshot study notes-plan --set data=cifar10 --set epochs=50` all mechanisms that the notes planned, against FAFI

    `fedshot results` queries what came out.
    """
    from fedshot.options import parse_pairs
    from fedshot.study.lock import alone_in
    from fedshot.study.recipe import read_recipe
    from fedshot.study.trackers import Trackers

    recipe = read_recipe(source, parse_pairs(change or [], "--set"))
    folder = out or Path("runs") / recipe.name
    if slurm or slurm_array:
        if dry_run or track:
            raise UserError("--slurm only submits: estimate the cost, or give finished runs to a tracker, without it")
        return _submit(recipe, folder, _job(device, workers, lanes, data_root), slurm_set, slurm_array, json)
    if slurm_set:
        raise UserError("--slurm-set does nothing without --slurm or --slurm-array")
    from fedshot.experiment import Execution
    from fedshot.study.plan import make_plan

    execution = Execution(data_root, s.device_of(device), workers or os.cpu_count() or 1, lanes=lanes)
    trackers = Trackers(track or [], folder)
    plan = make_plan(recipe.cells, folder, data_root, execution.devices[0])
    if dry_run:
        return _estimate(plan, folder, execution, json)
    with alone_in(folder):
        outcomes = _run(recipe, plan, folder, execution, trackers, json)
    _present(plan, outcomes, folder, recipe.definition.get("against"), json)
    return None


def _run(
    recipe: "Recipe", plan: "list[Planned]", out: Path, execution: "Execution", trackers: Any, quiet: bool
) -> "list[Outcome]":
    from fedshot.record import Record
    from fedshot.study.live import LiveTable
    from fedshot.study.runner import run_plan, write_definition

    write_definition(recipe, plan, out)
    with LiveTable(plan, quiet) as live:

        def ended(planned: "Planned", outcome: "Outcome") -> None:
            live.ended(planned, outcome)
            if isinstance(outcome, Record):
                trackers.export(planned.folder, outcome)

        return run_plan(plan, execution, live, ended)


def _present(
    plan: "Sequence[Planned]", outcomes: "Sequence[Outcome]", out: Path, against: str | None, json: bool
) -> None:
    """The table, the paths, the failures; exit status 1 if there are any."""
    from fedshot.changed import words_of
    from fedshot.record import Record

    failed = [(planned, e) for planned, e in zip(plan, outcomes, strict=True) if isinstance(e, Exception)]
    if json:
        import json as json_module

        runs = [_as_json(planned, outcome) for planned, outcome in zip(plan, outcomes, strict=True)]
        typer.echo(json_module.dumps({"out": str(out), "runs": runs}, indent=1))
    else:
        done = [(planned, r) for planned, r in zip(plan, outcomes, strict=True) if isinstance(r, Record)]
        if done:
            _print_table(done, against, out)
        typer.echo(f"runs: {out / 'runs'}\nquery them: {shlex.join(['fedshot', 'results', str(out)])}")
    for planned, error in failed:
        at = ", ".join(f"{axis} {words_of(value)}" for axis, value in planned.cell.at.items() if axis in _named(plan))
        typer.echo(f"failed: {at}: {error} ({planned.folder})", err=True)
    if failed:
        typer.echo(f"{len(failed)} of {len(plan)} runs failed; the same command tries them again", err=True)
        raise typer.Exit(1)


def _named(plan: "Sequence[Planned]") -> set[str]:
    """Axes by which a run is told from the others."""
    from fedshot.study.grid import varying

    return {"method", "seed", *varying([planned.cell.at for planned in plan])}


def _print_table(done: "Sequence[tuple[Planned, Any]]", against: str | None, out: Path) -> None:
    """Mean ± deviation over seeds for each cell of the grid, with the names of the study's own axes.

    A study that names a method to compare with ends with the differences to it, which are written to a file as well.
    """
    from rich.console import Console

    from fedshot.store import write_atomic
    from fedshot.study.grid import varying
    from fedshot.study.pivot import MOST_COLUMNS
    from fedshot.study.ranks import differences
    from fedshot.study.results import Results
    from fedshot.study.rows import row_of
    from fedshot.study.sheet import TEXTS, as_table
    from fedshot.study.tables import difference_sheet, pivot_sheet

    axes = [a for a in varying([planned.cell.at for planned, _ in done]) if a not in ("method", "seed")]
    rows = [
        {
            **row_of(record, planned.folder),
            **{axis: planned.cell.at.get(axis) for axis in axes},
            "variant": planned.label,
        }
        for planned, record in done
    ]
    found = Results(tuple(rows))
    table = found.pivot(["variant"], axes)
    if len(table.columns) > MOST_COLUMNS:
        table = found.pivot(["variant", *axes])
    console = Console()
    console.print(as_table(pivot_sheet(table), console.width))
    if any(record.held_out for _, record in done) and len(done) > 1:
        parts = f"rows=variant,columns={'+'.join(axes) or 'data'},value=held_out.accuracy"
        typer.echo(f"to choose among them, by what clients hold back: fedshot results {out} --pivot {parts}")
    labels = [planned.label for planned, _ in done if planned.cell.at["method"] == against]
    if against and labels:
        sheet = difference_sheet(differences(found, labels[0]), labels[0], "final.accuracy")
        console.print(as_table(sheet, console.width))
        path = out / f"against-{against}.md"
        write_atomic(path, TEXTS["markdown"](sheet).encode())
        typer.echo(f"written to {path}")


def _as_json(planned: "Planned", outcome: "Outcome") -> dict[str, Any]:
    row: dict[str, Any] = {"at": dict(planned.cell.at), "folder": str(planned.folder)}
    if isinstance(outcome, Exception):
        return {**row, "state": "failed", "reason": str(outcome)}
    return {**row, "state": "done", "accuracy": outcome.final.accuracy, "result_sha256": outcome.result_sha256}


def _estimate(plan: "list[Planned]", out: Path, execution: "Execution", json: bool) -> None:
    from fedshot.study.estimate import estimate

    found = estimate(plan, out, execution)
    if json:
        import json as json_module

        typer.echo(json_module.dumps(found.as_json(), indent=1))
    else:
        typer.echo(found.in_words())


def _job(device: str, workers: int | None, lanes: int | None, data_root: Path | None) -> "Execution":
    """How a job computes. This machine need not have the devices of the cluster."""
    from fedshot.experiment import Execution

    if device != "cpu" and not device.startswith("cuda"):
        raise UserError("--slurm: say where the jobs compute: --device cuda or --device cpu")
    return Execution(data_root.absolute() if data_root else None, device, workers or 1, lanes=lanes)


def _submit(
    recipe: "Recipe", out: Path, execution: "Execution", given: list[str] | None, array: bool, json: bool
) -> None:
    from fedshot.options import parse_pairs
    from fedshot.study.plan import make_plan
    from fedshot.study.runner import write_definition
    from fedshot.study.slurm import submit

    parameters = parse_pairs(given or [], "--slurm-set")
    plan = make_plan(recipe.cells, out.absolute(), execution.data_root, "cpu", execution.device)
    jobs = submit(plan, out.absolute(), execution, parameters, array)
    write_definition(recipe, plan, out)
    if json:
        import json as json_module

        typer.echo(json_module.dumps({"out": str(out), "jobs": jobs}, indent=1))
    else:
        typer.echo(f"submitted {len(jobs)} jobs: {' '.join(jobs)}\nlogs: {out / 'slurm'}\nthen: fedshot results {out}")
