"""`fedshot fuse`: other fusion rules on the uploads of a finished run."""

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedshot.cli import settings as s
from fedshot.errors import UserError
from fedshot.options import parse_integers

if TYPE_CHECKING:
    from fedshot.setting import Setting
    from fedshot.store import RunFolder

JudgedOn = Literal["test", "held-out"]


def fuse(
    run: Annotated[Path, typer.Argument(help="the folder of a run (`fedshot run --out`)")],
    fusion: Annotated[
        list[str] | None,
        typer.Option(
            "--fusion",
            "-f",
            help="a rule, repeatable, options as `features:weights=uniform`, or FILE.py of your own; if not given all "
            "of ours that train nothing",
        ),
    ] = None,
    without: Annotated[
        str | None, typer.Option("--without", help="leave clients out, as 0,3: what if they had not come?")
    ] = None,
    on: Annotated[
        JudgedOn,
        typer.Option(
            "--on",
            help="which images judge: `test`; or `held-out`, those that clients held back by --validation, on which a "
            "rule and its options may be chosen",
        ),
    ] = "test",
    public: Annotated[
        str | None,
        typer.Option(
            "--public", help="public images for rules that ask for them where the run has none: another data set"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="keep each rule as a run of its own in this folder, with record and clients"),
    ] = None,
    data_root: s.RootOption = None,
    device: s.DeviceOption = "auto",
    json: s.JsonOption = False,
) -> None:
    """Fuse the uploads of a run again, by any rules, without its clients; each image is encoded once for all rules.

    **Examples**

    - `fedshot fuse runs/RUN` every rule that the uploads allow and that trains nothing

    - `fedshot fuse runs/RUN -f features:weights=uniform -f class_weighted:power=0.5`

    - `fedshot fuse runs/RUN --on held-out -f routed -f routed:sharpness=1 -f routed:sharpness=2` a choice that no test
    image decides

    - `fedshot fuse runs/RUN -f single` one model in place of all clients of `recommended`, trained at the server

    - `fedshot fuse runs/RUN -f distilled --public cifar100` the same, taught by images of another data set

    - `fedshot fuse runs/RUN -f features -f my_rule.py:power=2` a rule of your own, from one file

    - `fedshot fuse runs/RUN --without 2` the same federation without client 2

    - `fedshot fuse runs/RUN -f logits -f average --out runs/rules` full runs, to report and to keep
    """
    from fedshot.cli.progress import Progressing
    from fedshot.fusion import FUSIONS, make_fusion, without_training
    from fedshot.store import RunFolder
    from fedshot.telling import heard_by

    if out and without:
        raise UserError("--without does not go with --out: a record tells of all clients of its run")
    if out and on != "test":
        raise UserError(
            f"--on {on} does not go with --out, which keeps records of both: leave it out, and look at them by "
            f"fedshot results {out} --pivot rows=fusion,columns=seed,value=held_out.accuracy"
        )
    absent = parse_integers(without, "--without") if without else []
    rules = [make_fusion(text) for text in fusion or []]  # a misspelt rule is told before anything is loaded
    if public is not None and not any(rule.public for rule in rules):
        raise UserError(f"--public {public} does nothing: no rule that is named by -f reads public images")
    folder = RunFolder(run)
    if not folder.spec.exists():
        raise UserError(f"{run} is not the folder of a run: it has no spec.json")
    asked, at = fusion or [], s.device_of(device).partition(",")[0]
    lost = f"rules that are done are kept in {out}" if out else "nothing was kept: --out keeps each rule that is done"
    with Progressing([str(run)], json, lost) as watch, heard_by(watch.server):
        if out:
            rows = _kept(folder, asked, out, data_root, at, public)
        else:
            rows = _rows(_setting(folder, data_root, at, public, on), folder, asked, absent)
    rows = [{**row, "on": on} for row in rows]
    if json:
        typer.echo(json_module.dumps(rows, indent=1))
    else:
        _table(rows)
        if on == "test" and sum("error" not in row for row in rows) > 1:
            typer.echo(f"sorted by test accuracy; {_how_to_choose(folder)}")
        if not asked:
            left = ", ".join(name for name in FUSIONS if name not in without_training())
            typer.echo(f"not tried, since they train a model: {left}; name one with -f")
        if out and any("run" in row for row in rows):
            typer.echo(f"runs: {out}")
    if asked and any("error" in row for row in rows):
        raise typer.Exit(2)


def _setting(folder: "RunFolder", data_root: Path | None, device: str, public: str | None, on: JudgedOn) -> "Setting":
    """That of a run's clients, with the images that judge in the place of test images."""
    from fedshot.prepare import prepare
    from fedshot.sharing import of_clients, with_public
    from fedshot.store import read_spec

    spec = with_public(of_clients(read_spec(folder.spec)), public)
    setting = prepare(spec, data_root, device, folder.pretrained)
    return setting.on_held_out() if on == "held-out" else setting


def _rows(setting: "Setting", folder: "RunFolder", asked: list[str], absent: list[int]) -> list[dict[str, Any]]:
    """What rules give on the uploads of a run, and nothing is kept."""
    from fedshot.local.work import one_thread
    from fedshot.server import fuse_again

    with one_thread(setting.device):
        return fuse_again(setting, folder, asked, absent)


def _kept(
    folder: "RunFolder", asked: list[str], out: Path, data_root: Path | None, device: str, public: str | None
) -> list[dict[str, Any]]:
    """The same from the records of runs that are kept, a folder for each rule."""
    from fedshot.another_rule import keep_rule
    from fedshot.cli.places import folder_names
    from fedshot.fusion import without_training

    rows: list[dict[str, Any]] = []
    for text, name in folder_names(asked or without_training()).items():
        place = out / name
        try:
            record = keep_rule(folder, text, place, data_root, device, public)
        except UserError as error:
            rows.append({"fusion": text, "error": str(error)})
            continue
        rows.append(
            {
                **record.final.model_dump(mode="json"),
                "fusion": text,
                "images": record.final.images,
                "upload_bytes": record.cost.upload_bytes,
                "models_kept": record.cost.models_kept,
                "clients": [client.id for client in record.clients if not client.skipped],
                "left_out": {str(client.id): client.skipped for client in record.clients if client.skipped},
                **({"student": record.student.model_dump()} if record.student else {}),
                "run": str(place),
            }
        )
    return sorted(rows, key=lambda row: -row.get("accuracy", -1.0))


def _table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from fedshot.report.wording import bytes_in_words
    from fedshot.student import Student

    console, table = Console(), Table(box=None, pad_edge=False, header_style="bold")
    usable = [row for row in rows if "error" not in row]
    for column in ("fusion", "accuracy", "worst\nclass", "calibration\nerror", "upload of\na client", "models"):
        table.add_column(column, justify="left" if column == "fusion" else "right", overflow="fold")
    for row in usable:
        table.add_row(
            Text(row["fusion"] + ("" if row["inductive"] else " *")),
            f"{row['accuracy']:.2%}",
            f"{row['worst_class_accuracy']:.1%}",
            f"{row['calibration_error']:.1%}",
            bytes_in_words(row["upload_bytes"] / len(row["clients"])),
            str(row["models_kept"]),
        )
    if usable:
        console.print(table)
        if usable[0]["on"] == "held-out":
            _judged_by(usable)
    if not all(row["inductive"] for row in usable):
        console.print(f"* transductive: reads statistics of the {usable[0]['on']} images", style="dim")
    for number, reason in (usable[0]["left_out"] if usable else {}).items():
        console.print(f"without client {number}: {reason}", style="dim", markup=False)
    for row in usable:
        if "student" in row:
            told = Student.model_validate(row["student"]).in_words(row["on"])
            console.print(f"{row['fusion']}: {told}", style="dim", markup=False)
    for row in rows:
        if "error" in row:
            console.print(f"{row['fusion']}: not possible, {row['error']}", style="yellow", markup=False)


def _how_to_choose(folder: "RunFolder") -> str:
    """Where a choice among rules belongs, for the clients of a run."""
    from fedshot.partition.own import OWN
    from fedshot.store import read_spec

    spec = read_spec(folder.spec)
    if spec.recipe == OWN and not spec.partition_file:
        return "choose on data of your own, not by this"
    if not spec.validation:
        return "to choose by images that clients hold back, train with --validation 0.1"
    return "choose by what clients hold back, --on held-out"


def _judged_by(rows: list[dict[str, Any]]) -> None:
    """How many held-out images judged, and which rules had read something of them."""
    from rich.console import Console

    from fedshot.fusion import make_fusion

    console = Console()
    console.print(f"on {rows[0]['images']:,} images that clients held back", style="dim")
    if read := [row["fusion"] for row in rows if make_fusion(row["fusion"]).held_out]:
        told = f"{', '.join(read)} read{'s' if len(read) == 1 else ''} what clients found on these very images"
        console.print(told, style="dim", markup=False)
