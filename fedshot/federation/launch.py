"""One shot over a federation that is up: the run is begun here, conducted by the server's app, and followed here."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedshot.errors import UserError
from fedshot.federation.conduct import begin
from fedshot.federation.engine import Control, EngineRefused, require_engine
from fedshot.federation.labour import is_held
from fedshot.federation.layout import ServerFolder
from fedshot.federation.ledger import read_ledger
from fedshot.federation.operations import services
from fedshot.federation.plan import Plan
from fedshot.record import Record, read_record
from fedshot.spec import Spec
from fedshot.store import write_atomic

_ASK_SECONDS = 5.0  # between two questions to the engine how the run stands
_POLL_SECONDS = 0.5  # between two looks at the ledger


class RunFailed(RuntimeError):
    """The server's part of a run ended without a record."""


@dataclass(frozen=True)
class Launched:
    """A run under way."""

    folder: ServerFolder
    run: Path
    engine_run: int  # the engine's number of it
    lines: int  # of the ledger, before it was started

    def entries(self) -> list[dict[str, Any]]:
        """The ledger's lines of this start."""
        return list(read_ledger(self.run / "ledger.jsonl"))[self.lines :]


def nodes_of(folder: ServerFolder) -> dict[int, int]:
    """The number of the client behind each node; refuses a federation that is not up."""
    if services(folder)[0].pid() is None:
        raise UserError(f"the server is not up: `fedshot federation up {folder.path}` starts it")
    known = folder.read_nodes()
    nodes = {known[member.public_key]: member.number for member in folder.read().members if member.public_key in known}
    if not nodes:
        raise UserError(f"no client may join yet: `fedshot federation up {folder.path}` lets the keys in")
    return nodes


def launch(folder: ServerFolder, spec: Spec, out: Path, plan: Plan, resume: bool) -> Launched:
    """Begins a run and hands it to the engine."""
    require_engine()
    if is_held(out / "server.lock"):
        raise UserError(f"the server works on {out} already: look at it by `fedshot federation status {out}`")
    begin(spec, out, plan, resume)
    lines = len(list(read_ledger(out / "ledger.jsonl")))
    try:
        number = Control(folder).start(out)
    except EngineRefused as error:
        raise UserError(f"the engine did not start the run: {error}") from None
    remember(folder, out, number)
    return Launched(folder, out, number, lines)


def follow(launched: Launched) -> Iterator[Sequence[dict[str, Any]]]:
    """New lines of the ledger, now and then, until there is a record; RunFailed where there will be none."""
    told, asked = 0, time.monotonic()
    while True:
        entries = launched.entries()
        yield entries[told:]
        told = len(entries)
        ends = [entry for entry in entries if entry["event"] in ("record", "end", "too few")]
        if ends:
            if ends[-1]["event"] == "too few":
                raise RunFailed(ends[-1]["reason"])
            return
        if time.monotonic() - asked > _ASK_SECONDS and not is_held(launched.run / "server.lock"):
            asked = time.monotonic()
            if _has_ended(launched):
                return
        time.sleep(_POLL_SECONDS)


def _has_ended(launched: Launched) -> bool:
    """Whether the server's part has ended, at once where nothing was left to do; RunFailed without a record."""
    if services(launched.folder)[0].pid() is None:
        raise RunFailed(
            f"the server went down; what arrived is kept: `fedshot federation up {launched.folder.path}`, then the "
            "same command with --resume"
        )
    try:
        state, why = Control(launched.folder).state(launched.engine_run)
    except EngineRefused:
        return False  # it may be starting again
    if state.startswith("finished") and read_record(launched.run / "record.json") is None:
        raise RunFailed(f"the server's part ended without a record ({state.partition(':')[2]}): {why}")
    return state.startswith("finished")


def finished(launched: Launched) -> Record:
    """The record of a run that has ended."""
    record = read_record(launched.run / "record.json")
    if record is None:
        raise RunFailed(f"{launched.run} has no record")
    return record


def stop(launched: Launched) -> None:
    """Stops the server's part. Clients go on training and keep what they trained."""
    with suppress(EngineRefused):  # it has ended by itself
        Control(launched.folder).stop(launched.engine_run)


def remember(folder: ServerFolder, run: Path, engine_run: int) -> None:
    """Notes the last run of a federation, for its status."""
    write_atomic(folder.path / "last.json", json.dumps({"run": str(run.absolute()), "engine_run": engine_run}).encode())


def last_run(folder: ServerFolder) -> Path | None:
    """The folder of the last run of a federation."""
    try:
        return Path(json.loads((folder.path / "last.json").read_bytes())["run"])
    except FileNotFoundError:
        return None
