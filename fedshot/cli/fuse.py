"""`fedshot fuse`: other fusion rules on the uploads of a finished run."""

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from fedshot.cli import settings as s
from fedshot.errors import UserError


def fuse(
    run: Annotated[Path, typer.Argument(help="The folder of a run (`fedshot run --out`).")],
    fusion: Annotated[
        list[str] | None,
        typer.Option(
            "--fusion", "-f", help="A rule, repeatable, options as `features:weights=uniform`; all if not given."
        ),
    ] = None,
    without: Annotated[
        str | None, typer.Option("--without", help="Leave clients out, as 0,3: what if they had not come?")
    ] = None,
    data_root: s.RootOption = None,
    device: s.DeviceOption = "auto",
    json: s.JsonOption = False,
) -> None:
    """Fuse the uploads of a run again, by any rules, without training; each image is encoded once for all rules.

    **Examples**

    - `fedshot fuse runs/RUN` every rule that the uploads allow

    - `fedshot fuse runs/RUN -f features:weights=uniform -f class_weighted:power=0.5`

    - `fedshot fuse runs/RUN --without 2` the same federation without client 2
    """
    from fedshot.fusion import make_fusion
    from fedshot.local.work import one_thread
    from fedshot.server import fuse_again
    from fedshot.setting import prepare
    from fedshot.store import RunFolder, read_spec

    absent = s.parse_integers(without, "--without") if without else []
    for text in fusion or []:
        make_fusion(text)  # a misspelt rule is told before anything is loaded
    folder = RunFolder(run)
    if not folder.spec.exists():
        raise UserError(f"{run} is not the folder of a run: it has no spec.json")
    setting = prepare(read_spec(folder.spec), data_root, s.device_of(device))
    with one_thread(setting.device):
        rows = fuse_again(setting, folder, fusion or [], absent)
    if json:
        typer.echo(json_module.dumps(rows, indent=1))
        return
    _table(rows)


def _table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, side in (
        ("fusion", "left"),
        ("accuracy", "right"),
        ("worst class", "right"),
        ("calibration error", "right"),
        ("upload", "right"),
        ("models", "right"),
        ("", "left"),
    ):
        table.add_column(column, justify=side)
    for row in rows:
        if "error" in row:
            table.add_row(row["fusion"], "–", "–", "–", "–", "–", row["error"])
            continue
        note = "" if row["inductive"] else "transductive: reads the test images' statistics"
        table.add_row(
            row["fusion"],
            f"{row['accuracy']:.2%}",
            f"{row['worst_class_accuracy']:.1%}",
            f"{row['calibration_error']:.3f}",
            f"{row['upload_bytes'] / 1e6:.2f} MB",
            str(row["models_kept"]),
            note,
        )
    Console().print(table)
