"""What the server's operator sees during `fedshot federation run`."""

import sys
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from fedshot.cli.places import folder_name
from fedshot.cli.standing import standings_table
from fedshot.errors import UserError
from fedshot.federation.launch import Launched, RunFailed, finished, follow, launch, stop
from fedshot.federation.layout import ServerFolder
from fedshot.federation.ledger import standings
from fedshot.federation.plan import Plan
from fedshot.prepare import prepare
from fedshot.record import Record
from fedshot.spec import Spec

_ALONE_SECONDS = 15.0
_ALONE = "nobody is online yet; clients join with `fedshot federation join NAME.join --data …`"
_QUIET_EVENTS = ("busy",)  # that would fill the screen where there is no terminal


def conducted(
    server: ServerFolder, spec: Spec, out: Path | None, plan: Plan, resume: bool, quiet: bool
) -> tuple[Record, Path]:
    """Begins a run and follows it to its record; that, and the folder of the run."""
    console = Console(stderr=True, quiet=quiet)
    folder = out or Path("runs") / folder_name(prepare(spec, plan.data_root, plan.device).spec)
    names = {member.number: member.name for member in server.read().members}
    launched = launch(server, spec, folder, plan, resume)
    console.print(f"{folder}: asked of {len(plan.nodes)} clients, {plan.deadline_seconds:.0f} s at most", markup=False)
    try:
        if console.is_terminal and not quiet:
            _draw(launched, console, names)
        else:
            _tell(launched, console, names)
    except RunFailed as error:
        raise UserError(f"there is no record: {error}") from None
    except KeyboardInterrupt:
        stop(launched)
        said = f"stopped; what arrived is kept in {folder}, clients keep what they train: go on with --resume"
        print(f"fedshot: {said}", file=sys.stderr)
        raise
    return finished(launched), folder


def _draw(launched: Launched, console: Console, names: Mapping[int, str]) -> None:
    """A table that changes, on a terminal."""
    began, ledger = time.monotonic(), launched.run / "ledger.jsonl"
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        for _ in follow(launched):
            rows, seconds = standings(ledger, len(names)), time.monotonic() - began
            table = standings_table(rows, names)
            nobody = seconds > _ALONE_SECONDS and not any(row.online for row in rows)
            table.caption = f"{seconds:.0f} s" + (f"; {_ALONE}" if nobody else "")
            live.update(table)


def _tell(launched: Launched, console: Console, names: Mapping[int, str]) -> None:
    """A line for each event."""
    began, alone = time.monotonic(), True
    for entries in follow(launched):
        for entry in entries:
            if entry["event"] not in _QUIET_EVENTS:
                at = datetime.fromisoformat(entry["time"]).astimezone().strftime("%H:%M:%S")
                console.print(f"{at} {in_words(entry, names)}", markup=False, highlight=False, soft_wrap=True)
            alone &= entry["event"] != "online"
        if alone and time.monotonic() - began > _ALONE_SECONDS:
            console.print(_ALONE, markup=False)
            alone = False


def in_words(entry: Mapping[str, Any], names: Mapping[int, str]) -> str:
    """A line of the ledger as a person reads it.

    >>> in_words({"time": "2026-01-02T03:04:05.678+00:00", "client": 0, "event": "busy", "epoch": 7}, {0: "ward"})
    'ward: busy, epoch 7'
    """
    client = entry.get("client")
    who = "server" if client is None else names.get(client, f"client {client}")
    told = {key: value for key, value in entry.items() if key not in ("time", "client", "event", "reason")}
    details = [f"{key} {value:.1f}" if isinstance(value, float) else f"{key} {value}" for key, value in told.items()]
    details += [entry["reason"]] if entry.get("reason") else []
    return f"{who}: {', '.join([entry['event'], *details])}"
