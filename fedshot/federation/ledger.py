"""The ledger of a run: one line for each thing that happened to a client, and what they add up to."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict

Value = str | int | float | None
NOTHING: Mapping[str, Value] = MappingProxyType({})


class Ledger:
    """Appends to ledger.jsonl. A line that cannot be written is kept and written later: a full disk loses none."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._waiting: list[bytes] = []

    def note(self, event: str, client: int | None = None, detail: Mapping[str, Value] = NOTHING) -> None:
        """One thing that happened, now."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": at, "client": client, "event": event, **detail}
        self._waiting.append(json.dumps(line).encode() + b"\n")
        try:
            self._write()
        except OSError as error:
            who = "" if client is None else f"client {client}: "
            print(f"fedshot: {who}{event}: the ledger cannot be written: {error.strerror}", file=sys.stderr)

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a+b") as file:
            begin = file.seek(0, os.SEEK_END)
            torn = begin > 0 and os.pread(file.fileno(), 1, begin - 1) != b"\n"  # by a server that was killed
            try:
                file.write(b"\n" * torn + b"".join(self._waiting))
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                file.truncate(begin)  # no half lines
                raise
        self._waiting = []


class Standing(BaseModel):
    """One client's row: what the ledger's lines about it add up to."""

    model_config = ConfigDict(frozen=True)

    client: int
    state: str = "not asked"
    online: bool = False
    samples: int | None = None
    bytes: int | None = None
    seconds: float | None = None  # that it trained
    epoch: int | None = None  # that it has finished, while it trains
    asked: int = 0
    retries: int = 0
    refusals: int = 0
    duplicates: int = 0
    late: bool = False
    suspected: str | None = None  # why its upload may be poisoned
    reason: str | None = None
    time: str | None = None  # of the last line about it


BUSY = "it was busy"  # why a client is asked again that has done nothing wrong

# what an event makes of a client; the others leave its state as it is
_STATES = {
    "asked": "asked",
    "busy": "training",
    "counts": "announced",
    "delivered": "delivered",
    "late": "delivered",
    "skipped": "skipped",
    "refused": "refused",
    "declined": "declined",
    "failed": "failed",
    "lost": "failed",
    "silent": "silent",
    "disk full": "server's disk full",
    "missing": "missing",
}
_SETTLED = ("delivered", "skipped")  # nothing but a new upload changes them
_SAID_NO = ("refused", "declined")  # which says more than that it is missing
_TOLD = ("samples", "bytes", "seconds", "epoch", "reason")


def read_ledger(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of a ledger; a torn one, of a process that was killed while it wrote, is left out."""
    if not file.exists():
        return
    for line in file.read_bytes().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and "event" in entry:
            yield entry


def standings(file: Path, clients: int) -> list[Standing]:
    """One row for each client."""
    rows = {number: Standing(client=number) for number in range(clients)}
    for entry in read_ledger(file):
        number = entry.get("client")
        if number in rows:
            rows[number] = _after(rows[number], entry)
    return list(rows.values())


def _after(row: Standing, entry: Mapping[str, Any]) -> Standing:
    event = entry["event"]
    changes: dict[str, Any] = {"time": entry.get("time")}
    if event in ("online", "gone"):
        return row.model_copy(update={**changes, "online": event == "online"})
    changes["asked"] = row.asked + (event == "asked")
    changes["retries"] = row.retries + (event == "asked" and entry.get("again") not in (None, BUSY))
    changes["refusals"] = row.refusals + (event in ("refused", "declined"))
    changes["duplicates"] = row.duplicates + (event == "duplicate")
    changes["late"] = row.late or event == "late"
    changes["suspected"] = entry.get("reason") if event == "suspected" else row.suspected
    state = "training" if entry.get("again") == BUSY else _STATES.get(event)
    if state == "missing" and row.state in _SAID_NO:
        state = row.state
    if state is not None and (state in _SETTLED or row.state not in _SETTLED):
        changes |= {"state": state, "reason": None, **{key: entry[key] for key in _TOLD if key in entry}}
    return row.model_copy(update=changes)
