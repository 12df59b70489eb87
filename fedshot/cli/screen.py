"""`fedshot screen`: which uploads of a run may be poisoned, and why."""

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedshot.cli import settings as s
from fedshot.errors import UserError

if TYPE_CHECKING:
    from fedshot.screen import Screening


def screen(
    run: Annotated[Path, typer.Argument(help="the folder of a run (`fedshot run --out`)")],
    details: Annotated[bool, typer.Option("--details", help="every test of every client, not only suspicions")] = False,
    data_root: s.RootOption = None,
    device: s.DeviceOption = "auto",
    json: s.JsonOption = False,
) -> None:
    """Compare the uploads of a run with each other: scaled, random or flipped weights, labels that are not the others'.

    A suspicion is no proof: look at the client before leaving it out. Exit status 1 if there is one, or if an upload
    had to be refused before it could be compared.

    **Examples**

    - `fedshot screen runs/RUN` who is suspicious, and why

    - `fedshot screen runs/RUN --details` all figures; `--json` for programs

    - `fedshot fuse runs/RUN --without 2` the same federation without the suspect
    """
    from fedshot.local.work import one_thread
    from fedshot.prepare import prepare
    from fedshot.screen import screen as compared
    from fedshot.server import REFUSED, receive
    from fedshot.sharing import of_clients
    from fedshot.store import RunFolder, read_spec

    folder = RunFolder(run)
    if not folder.spec.exists():
        raise UserError(f"{run} is not the folder of a run: it has no spec.json")
    at = s.device_of(device).partition(",")[0]
    setting = prepare(of_clients(read_spec(folder.spec)), data_root, at, folder.pretrained)
    with one_thread(setting.device):
        received = receive(setting, folder, ("weights",))
        found = compared(received.members, setting)
    if json:
        told = {
            **found.model_dump(mode="json"),
            "suspects": {str(k): why for k, why in found.suspects.items()},
            "not_screened": {str(k): why for k, why in received.missing.items()},
        }
        typer.echo(json_module.dumps(told, indent=1))
    else:
        _show(found, run, details)
        for number, reason in received.missing.items():
            typer.echo(f"client {number} was not screened: {reason}")
    if found.suspects or any(reason.startswith(REFUSED) for reason in received.missing.values()):
        raise typer.Exit(1)


def _show(found: "Screening", run: Path, details: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    console, table = Console(highlight=False), Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(("client", "test", "value", "usual", "limit", "found")):
        table.add_column(column, justify="left" if number in (0, 1, 5) else "right")
    for each in found.clients:
        for check in each.checks if details else each.suspicions:
            mark = "suspicious: " if check.suspicious else ""
            figures = (f"{value:.3g}" for value in (check.value, check.usual, check.limit))
            table.add_row(str(each.client), check.test, *figures, mark + check.words)
    if table.row_count:
        console.print(table)
    made = {check.test for each in found.clients for check in each.checks}
    if found.suspects:
        left_out = ",".join(map(str, found.suspects))
        console.print(f"without them: fedshot fuse {run} --without {left_out}", markup=False)
    else:
        console.print(f"no client is suspicious in {len(made)} tests")
    for test, reason in found.not_possible.items():
        console.print(f"{test}: not possible, {reason}", style="dim", markup=False)
