"""Telemetry as a page shows it: read with care, thinned where it is long, rounded."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedshot.errors import UserError

Rows = Sequence[Mapping[str, float | int | None]]  # one for each client and epoch

MOST_CLIENTS = 12  # of a run; those with most samples
FEWEST_CLIENTS = 5  # of a run, however many runs there are
FEWEST_POINTS = 8  # of a client, however many runs there are
MOST_VALUES = 40_000  # of all runs of a page together


def read_telemetry(folder: Path) -> Rows:
    """The rows of a run folder; none if the file is gone. Refuses a damaged file."""
    file = folder / "telemetry.jsonl"
    return parse_telemetry(file, file.read_bytes()) if file.is_file() else []


def parse_telemetry(file: Path, content: bytes) -> Rows:
    """Rows from the bytes of a file. A row has a client, an epoch, and numbers or null by name."""
    rows = []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            row = json.loads(line)
            whole = isinstance(row["client"], int) and isinstance(row["epoch"], int)
            if not whole or not all(value is None or isinstance(value, int | float) for value in row.values()):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{file} is damaged in line {number}: its telemetry is left out") from None
        rows.append(row)
    return rows


def room_for(runs: Sequence[Rows]) -> tuple[int, int]:
    """How many clients of each run, and how many epochs of each client, fit a page that shows all these runs."""
    columns = max(1, sum(len(rows[0]) for rows in runs if rows))
    clients = max(FEWEST_CLIENTS, min(MOST_CLIENTS, MOST_VALUES // (FEWEST_POINTS * columns)))
    there = sum(len(rows[0]) * min(clients, len({row["client"] for row in rows})) for rows in runs if rows)
    return clients, max(FEWEST_POINTS, MOST_VALUES // max(there, 1))


def series(rows: Rows, sizes: Mapping[int, int], room: tuple[int, int]) -> dict[str, Any] | None:
    """Columns of the telemetry of the largest clients; None without rows.

    Args:
        sizes: samples of each client.
        room: how many clients, and how many epochs of each, may be kept.

    Returns: `clients`; `epochs` of each of them; `columns`, each a list of values for each client, or one number where
    all values are that number; `of`, how many clients and epochs there were.
    """
    numbers = sorted({int(row["client"] or 0) for row in rows})
    if not numbers:
        return None
    shown = sorted(sorted(numbers, key=lambda number: -sizes.get(number, 0))[: room[0]])
    kept = [thin([row for row in rows if row["client"] == number], room[1]) for number in shown]
    names = dict.fromkeys(name for row in rows for name in row if name not in ("client", "epoch"))
    columns = {name: [[rounded(row.get(name), 3) for row in client] for client in kept] for name in names}
    return {
        "clients": shown,
        "epochs": [[row["epoch"] for row in client] for client in kept],
        "columns": {name: _constant(values) for name, values in columns.items() if _constant(values) is not None},
        "of": [len(numbers), max(int(row["epoch"] or 0) for row in rows)],
    }


def thin(rows: Rows, most: int) -> Rows:
    """At most that many rows at even steps, the first and the last among them.

    >>> [row["epoch"] for row in thin([{"epoch": e} for e in range(1, 11)], 4)]
    [1, 4, 7, 10]
    """
    if len(rows) <= most:
        return rows
    return [rows[round(step * (len(rows) - 1) / (most - 1))] for step in range(most)]


def rounded(value: float | int | None, digits: int = 4) -> float | int | None:
    """A number short enough for a page.

    >>> rounded(0.123456), rounded(12.0), rounded(None), rounded(float("nan"))
    (0.1235, 12, None, None)
    """
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _constant(values: Sequence[Sequence[float | None]]) -> Any:
    """The one value of a column that has no other, else the column."""
    different = {value for client in values for value in client}
    return different.pop() if len(different) == 1 else values
