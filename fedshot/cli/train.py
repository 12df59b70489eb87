"""`fedshot run` and `fedshot compare`."""

import itertools
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedshot.cli import settings as s
from fedshot.cli.places import folder_name, folder_names
from fedshot.errors import UserError
from fedshot.options import parse_integers
from fedshot.spec import Spec

if TYPE_CHECKING:
    from fedshot.execution import Execution

_APART = ("method", "evaluate_at")  # arguments that are parsed before they become fields of Spec


def run(
    method: Annotated[
        str, typer.Argument(help="a name or alias (`fedshot methods`), with options as `etf:weight=0`, or FILE.py")
    ],
    data: s.DataOption = None,
    clients: s.ClientsOption = None,
    alpha: s.AlphaOption = None,
    recipe: s.RecipeOption = None,
    classes_per_client: s.ClassesOption = None,
    partition_file: s.PartitionFileOption = None,
    public: s.PublicOption = None,
    validation: s.ValidationOption = None,
    encoder: s.EncoderOption = None,
    pretrained: s.PretrainedOption = None,
    epochs: s.EpochsOption = None,
    evaluate_at: s.PointsOption = None,
    batch_size: s.BatchOption = None,
    seed: s.SeedOption = None,
    fusion: s.FusionOption = None,
    set: s.SetOption = None,
    device: s.DeviceOption = "auto",
    workers: s.WorkersOption = None,
    lanes: s.LanesOption = None,
    data_root: s.RootOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="folder of the run (default: runs/NAME)")] = None,
    resume: s.ResumeOption = True,
    json: s.JsonOption = False,
) -> None:
    """Train the clients of one method alone, fuse their uploads, score the result.

    **Examples**

    - `fedshot run fafi` on the embedded digits, 5 clients, α = 0.05

    - `fedshot run aurora --data cifar10 --epochs 50 --evaluate-at every:10 --set schedule=cosine --set lr=0.1`

    - `fedshot run V12 --set sigma.learning_rate=0.01 --set anchors=random`

    - `fedshot run my_variant.py --set strength=2` a method of your own, from one file

    The folder of the run holds record.json, telemetry.jsonl and the clients' uploads; `fedshot fuse` works on them.
    """
    given = spec_fields(locals())
    spec = s.build_spec(method, given, set, evaluate_at)
    from fedshot.experiment import run as run_experiment
    from fedshot.prepare import prepare
    from fedshot.store import RunFolder

    execution = _execution(device, workers, lanes, data_root, resume)
    # the name of the folder holds the complete spec: an edited variant, or another device, is another run
    complete = prepare(spec, data_root, execution.devices[0], RunFolder(out).pretrained if out else None).spec
    folder = out or Path("runs") / folder_name(complete)
    RunFolder(folder).check(complete)
    if resume:
        _take_up([folder], quiet=json)
    with _watch([method], json, resume) as watch:
        record = run_experiment(spec, folder, execution, watch)
    if json:
        typer.echo(record.model_dump_json(indent=1))
        return
    from rich.console import Console

    from fedshot.report import run_summary

    Console().print(run_summary(record))
    if record.privacy:
        from fedshot.privacy.record import in_words

        for line in in_words(record.privacy):
            typer.echo(line)
    typer.echo(f"record: {folder / 'record.json'}")


def compare(
    methods: Annotated[list[str], typer.Argument(help="names or aliases, with options as `etf:weight=0`, or FILE.py")],
    seeds: Annotated[
        str, typer.Option("--seeds", help="seeds as 1,2,3 or 1-5; three or more make a mean worth its name")
    ] = "1,2,3",
    data: s.DataOption = None,
    clients: s.ClientsOption = None,
    alpha: s.AlphaOption = None,
    recipe: s.RecipeOption = None,
    classes_per_client: s.ClassesOption = None,
    partition_file: s.PartitionFileOption = None,
    public: s.PublicOption = None,
    validation: s.ValidationOption = None,
    encoder: s.EncoderOption = None,
    pretrained: s.PretrainedOption = None,
    epochs: s.EpochsOption = None,
    evaluate_at: s.PointsOption = None,
    batch_size: s.BatchOption = None,
    fusion: s.FusionOption = None,
    set: s.SetOption = None,
    device: s.DeviceOption = "auto",
    workers: s.WorkersOption = None,
    lanes: s.LanesOption = None,
    data_root: s.RootOption = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="folder of the runs and of the report")] = Path(
        "runs/compare"
    ),
    resume: s.ResumeOption = True,
    json: s.JsonOption = False,
) -> None:
    """Run several methods on the same partitions, initial weights and epochs, over several seeds, and write a report.

    **Examples**

    - `fedshot compare fedavg fafi etf aurora --seeds 1,2,3`

    - `fedshot compare fafi etf:anchors=random etf:anchors=zero etf --alpha 0.1 --out runs/anchors`
    """
    given = spec_fields(locals())
    labels = list(dict.fromkeys(methods))
    numbers = parse_integers(seeds, "--seeds")
    specs = {(m, n): s.build_spec(m, {**given, "seed": n}, set, evaluate_at) for m in labels for n in numbers}
    for one, other in itertools.combinations(labels, 2):
        if _resolved(specs[one, numbers[0]]) == _resolved(specs[other, numbers[0]]):
            raise UserError(f"{one} and {other} are the same method: leave one of them out")
    from fedshot.experiment import run_all

    names, execution = folder_names(labels), _execution(device, workers, lanes, data_root, resume)
    folders = {(m, n): _own_place(out / names[m] / f"seed-{n}", specs[m, n], execution) for m, n in specs}
    if resume:
        _take_up(list(folders.values()), quiet=json)
    with _watch([f"{m} seed {n}" for m, n in specs], json, resume) as watch:
        outcomes = run_all([(specs[key], folders[key]) for key in specs], execution, watch)
    _present(dict(zip(specs, outcomes, strict=True)), folders, out, json)


def _resolved(spec: Spec) -> Spec:
    """The spec with all options of its method: one that is typed with its default value changes nothing."""
    from fedshot.methods import factory_of
    from fedshot.options import resolve
    from fedshot.own_rule import settled

    spec = settled(spec)
    options = resolve(factory_of(spec.method), spec.options, f"method {spec.method!r}")
    return spec.model_copy(update={"options": options})


def _own_place(folder: Path, spec: Spec, execution: "Execution") -> Path:
    """The folder, or one beside it that is named after the spec where it holds a run of another spec."""
    from fedshot.prepare import prepare
    from fedshot.store import RunFolder, differing_fields, read_spec

    held = RunFolder(folder)
    if not held.spec.exists():
        return folder
    complete = prepare(spec, execution.data_root, execution.devices[0], held.pretrained).spec
    if not differing_fields(read_spec(held.spec), complete):
        return folder
    return folder.with_name(f"{folder.name}-{complete.sha256[:8]}")


def _take_up(folders: list[Path], quiet: bool) -> None:
    """Says how many runs were finished before, so that nobody takes them for new; refuses those of another version."""
    from fedshot.record import read_record
    from fedshot.store import RunFolder

    for folder in folders:
        RunFolder(folder).check_version()
    known = sum(read_record(folder / "record.json") is not None for folder in folders)
    if known and not quiet:
        told = "this run was" if len(folders) == 1 else f"{known} of {len(folders)} runs were"
        typer.echo(f"{told} finished before and will not be trained again; --fresh does that", err=True)


def _present(outcomes: dict, folders: dict, out: Path, json: bool) -> None:
    from fedshot.record import Record
    from fedshot.report import as_markdown, as_table, comparison, write_page
    from fedshot.store import write_atomic

    runs: dict[str, list[Record]] = {}
    paths: dict[str, list[Path]] = {}
    failures = []
    for (method, seed), outcome in outcomes.items():
        if isinstance(outcome, Record):
            runs.setdefault(method, []).append(outcome)
            paths.setdefault(method, []).append(folders[method, seed])
        else:
            failures.append(f"{method} seed {seed}: {outcome}")
    if runs:
        write_atomic(out / "report.md", as_markdown(comparison(runs)).encode())
        page = write_page(runs, paths, out / "report.html", command=shlex.join(["fedshot", *sys.argv[1:]]))
        if json:
            import json as json_module

            typer.echo(
                json_module.dumps({m: [r.model_dump(mode="json") for r in rs] for m, rs in runs.items()}, indent=1)
            )
        else:
            from rich.console import Console

            console = Console()
            console.print(as_table(comparison(runs), console.width))
            typer.echo(f"report: {page}")
    for failure in failures:
        typer.echo(f"failed: {failure}", err=True)
    if failures:
        raise typer.Exit(1)


def spec_fields(arguments: dict[str, Any]) -> dict[str, Any]:
    """Of a command's arguments those that are fields of Spec by the same name and need no parsing."""
    return {name: value for name, value in arguments.items() if name in Spec.model_fields and name not in _APART}


def _execution(
    device: str, workers: int | None, lanes: int | None, data_root: Path | None, resume: bool
) -> "Execution":
    from fedshot.experiment import Execution

    return Execution(data_root, s.device_of(device), workers or os.cpu_count() or 1, resume, lanes)


def _watch(labels: list[str], quiet: bool, resume: bool) -> Any:
    from fedshot.cli.progress import Progressing

    again = "the same command" if resume else "the same command without --fresh"
    return Progressing(labels, quiet, f"finished clients are kept: {again} goes on")
