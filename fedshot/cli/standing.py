"""`fedshot federation status`: tables of a server, of a run, of a client's site."""

import json as json_module
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from fedshot.federation.authority import expiry
from fedshot.federation.joining import check_server
from fedshot.federation.joining import services as client_services
from fedshot.federation.launch import last_run
from fedshot.federation.layout import ServerFolder
from fedshot.federation.ledger import Standing, standings
from fedshot.federation.lookout import stages
from fedshot.federation.operations import online, services
from fedshot.federation.plan import read_plan
from fedshot.federation.site import Site
from fedshot.report.wording import bytes_in_words, seconds_in_words
from fedshot.store import RunFolder, read_spec

_NEVER = {"registered": "has never joined"}


def show_server(server: ServerFolder, json: bool) -> None:
    """The server: its processes, its clients, its last run."""
    federation, seen, run = server.read(), online(server), last_run(server)
    pids = {each.name: each.pid() for each in services(server)}
    states = {member.name: seen.get(member.number, "unknown: the server is down") for member in federation.members}
    if json:
        told: dict[str, Any] = {"address": federation.address, "processes": pids, "clients": states}
        told["certificate_ends"] = expiry(server.certificate).isoformat()
        told["run"] = None if run is None else {"folder": str(run), "clients": _rows(run)}
        typer.echo(json_module.dumps(told, indent=1))
        return
    console = Console()
    for name, pid in pids.items():
        if name == "engine" or not federation.local:
            console.print(f"{name}: {'down' if pid is None else f'up (process {pid})'}", markup=False, highlight=False)
    console.print(f"clients join at {federation.address}; certificate ends {expiry(server.certificate):%Y-%m-%d}\n")
    table = _table("number", "client", "state")
    for member in federation.members:
        table.add_row(str(member.number), member.name, _NEVER.get(states[member.name], states[member.name]))
    console.print(table)
    if run is not None and (run / "ledger.jsonl").exists():
        console.print(f"\nlast run: {run}", markup=False, highlight=False)
        names = {member.number: member.name for member in federation.members}
        console.print(standings_table(_standings(run), names))


def show_run(run: Path, json: bool) -> None:
    """A run: one row for each client."""
    if json:
        typer.echo(json_module.dumps({"folder": str(run), "clients": _rows(run)}, indent=1))
        return
    Console().print(standings_table(_standings(run), {}))
    record = RunFolder(run).record
    typer.echo(f"record: {record}" if record.exists() else "there is no record yet")


def show_site(site: Site, json: bool) -> None:
    """A client: whether it runs, whether the server answers, its jobs."""
    settings, pid, jobs = site.read(), client_services(site)[0].pid(), stages(site)
    why = check_server(settings)
    if json:
        told = {"name": settings.name, "number": settings.number, "process": pid, "server": why or "answers"}
        typer.echo(json_module.dumps({**told, "jobs": {name: vars(stage) for name, stage in jobs.items()}}, indent=1))
        return
    typer.echo(
        f"{settings.name}, client {settings.number} of {settings.server}: "
        + ("down" if pid is None else f"up (process {pid})")
    )
    typer.echo(f"server: {why or 'answers'}")
    for name, stage in jobs.items():
        typer.echo(f"job {name[:8]}: {stage.method}, {stage.in_words()}")


def standings_table(rows: Sequence[Standing], names: Mapping[int, str]) -> Table:
    """A run's ledger, one row for each client."""
    table = _table("client", "state", "epoch", "samples", "upload", "trained", "asked", "refused", "why")
    for row in rows:
        table.add_row(
            names.get(row.client, str(row.client)),
            row.state + (", late" if row.late else "") + ("" if row.online or row.state != "asked" else ", offline"),
            "" if row.epoch is None else str(row.epoch),
            "" if row.samples is None else f"{row.samples:,}",
            "" if row.bytes is None else bytes_in_words(row.bytes),
            "" if row.seconds is None else seconds_in_words(row.seconds),
            f"{row.asked}×" if row.asked else "",
            str(row.refusals) if row.refusals else "",
            row.reason or "",
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(
            column, justify="right" if column in ("epoch", "samples", "upload", "trained", "asked") else "left"
        )
    return table


def _standings(run: Path) -> list[Standing]:
    spec = RunFolder(run).spec
    clients = read_spec(spec).clients if spec.exists() else len(read_plan(run).nodes)
    return standings(run / "ledger.jsonl", clients)


def _rows(run: Path) -> list[dict[str, Any]]:
    return [row.model_dump() for row in _standings(run)]
