"""`fedshot audit`: how much uploads tell about who was in the training images."""

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedshot.cli import settings as s
from fedshot.errors import UserError
from fedshot.options import parse_integers

if TYPE_CHECKING:
    from fedshot.privacy.audit import ClientAudit


def audit(
    run: Annotated[Path, typer.Argument(help="the folder of a run (`fedshot run --validation 0.2 --out`)")],
    client: Annotated[str | None, typer.Option("--client", help="clients to attack, as 0,3; all if not given")] = None,
    data_root: s.RootOption = None,
    device: s.DeviceOption = "auto",
    json: s.JsonOption = False,
) -> None:
    """Attack the uploads of a run as a curious server would: can it tell a client's training images from held-out ones?

    The advantage of an attack is the largest TPR - FPR over all thresholds: 0 says nothing, 1 everything. It is a lower
    bound of what leaks. A star marks an advantage that chance alone would not give.

    **Examples**

    - `fedshot run fafi --validation 0.2 --out runs/held`, then `fedshot audit runs/held`

    - `fedshot audit runs/held --client 0 --json`
    """
    from fedshot.local.work import one_thread
    from fedshot.prepare import prepare
    from fedshot.privacy.audit import audit as attacked
    from fedshot.sharing import of_clients
    from fedshot.store import RunFolder, read_spec

    folder = RunFolder(run)
    if not folder.spec.exists():
        raise UserError(f"{run} is not the folder of a run: it has no spec.json")
    spec = of_clients(read_spec(folder.spec))
    numbers = parse_integers(client, "--client") if client else None
    if strangers := sorted(set(numbers or ()) - set(range(spec.clients))):
        raise UserError(f"there is no client {strangers[0]}: the clients are 0 to {spec.clients - 1}")
    setting = prepare(spec, data_root, s.device_of(device).partition(",")[0], folder.pretrained)
    with one_thread(setting.device):
        found = attacked(setting, folder, numbers)
    if json:
        typer.echo(json_module.dumps([each.model_dump(mode="json") for each in found], indent=1))
    else:
        _show(found)


def _show(found: "list[ClientAudit]") -> None:
    from rich.console import Console
    from rich.table import Table

    console, table = Console(highlight=False), Table(box=None, pad_edge=False, header_style="bold")
    columns = ("client", "attack", "reads", "advan-\ntage", "95 %", "by\nchance", "AUC", "TPR at\n1 % FPR", "images")
    for number, column in enumerate(columns):  # half a number is worse than none
        table.add_column(column, justify="left" if number < 3 else "right", no_wrap=number > 2, overflow="fold")
    for each in found:
        name = "all" if each.client is None else str(each.client)
        for attack in each.attacks:
            table.add_row(
                name,
                attack.attack,
                attack.section,
                f"{attack.advantage:.3f}{'*' if attack.significant else ' '}",
                f"{attack.low:.2f}…{attack.high:.2f}",
                f"{attack.by_chance:.3f}",
                f"{attack.auc:.3f}",
                f"{attack.tpr_at_low_fpr:.1%}",
                f"{attack.members}/{attack.others}",
            )
            name = ""
    console.print(table)
    console.print(
        "95 %: interval of the advantage; by chance: what 95 of 100 attacks that know nothing stay below, * above it; "
        "images: members/held out",
        style="dim",
    )
    for each in found:
        if each.bound is not None:
            console.print(
                f"client {each.client}: its (ε, δ) allows an advantage of at most {each.bound:.3f}", style="dim"
            )
