"""Runs on disk, read for a post-mortem: what is damaged, unfinished or of another version is named and left out."""

import json
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from fedshot import __version__
from fedshot.errors import UserError
from fedshot.explain.run import Row, Run, Sent
from fedshot.record import Record, RecordDamaged, parse_record
from fedshot.spec import first_problem
from fedshot.store import RunFolder
from fedshot.upload import Header

_READ = ("class_means/", "moments/", "weights/head.")  # encoders and covariances are large, and nothing here reads them


@dataclass(frozen=True)
class Problem:
    """A folder or file that could not be read, or not wholly, and why."""

    path: Path
    reason: str


class NotExplained(ValueError):
    """Why a folder is left out."""


def find_runs(path: Path) -> tuple[list[Path], list[Path]]:
    """The folders of runs at or below a path, in order, and the folders that hold nothing at all. Follows no links."""
    if not path.is_dir():
        raise UserError(f"{path} is not a folder: give the folder of a run, or one that holds runs")
    if any((path / name).exists() for name in ("spec.json", "record.json")):
        return [path], []
    runs: list[Path] = []
    empty: list[Path] = []
    for folder in sorted(child for child in path.iterdir() if child.is_dir() and not child.is_symlink()):
        below, nothing = find_runs(folder)
        runs, empty = runs + below, empty + nothing
    return runs, empty if any(path.iterdir()) else [path]


def load(path: Path) -> tuple[Run, list[Problem]]:
    """The run in a folder, and what of it could not be read. NotExplained if it cannot be explained at all."""
    run, problems = load_with(_record(RunFolder(path)), path)
    try:
        complaint = run.contradiction()
    except ValidationError as error:
        complaint = f"partition: {first_problem(error)}"
    if complaint:
        raise NotExplained(f"record.json is damaged: {complaint}")
    return run, problems


def load_with(record: Record, path: Path) -> tuple[Run, list[Problem]]:
    """The run in a folder whose record is at hand, written or not."""
    folder = RunFolder(path)
    rows, problems = _telemetry(folder)
    return Run(path, record, rows, lru_cache(maxsize=None)(partial(_upload, folder))), problems


def _record(folder: RunFolder) -> Record:
    try:
        content = folder.record.read_bytes()
    except FileNotFoundError:
        ended = len(list(folder.path.glob("clients/*/client.json")))
        raise NotExplained(
            f"not finished: {ended} clients have ended and there is no record; run its command again"
        ) from None
    except OSError as error:
        raise NotExplained(f"record.json cannot be read: {error.strerror}") from None
    try:
        written = json.loads(content)["versions"]["fedshot"]
    except (ValueError, KeyError, TypeError):
        written = None
    if isinstance(written, str) and _series(written) != _series(__version__):
        raise NotExplained(
            f"written by fedshot {written}, whose fields may mean other things than those of {__version__}"
        )
    try:
        return parse_record(content)
    except RecordDamaged as error:
        raise NotExplained(f"record.json is damaged: {error}") from None


def _series(version: str) -> list[str]:
    """Major and minor number: between these, fields keep their meaning."""
    return version.split(".")[:2]


def _telemetry(folder: RunFolder) -> tuple[dict[int, list[Row]], list[Problem]]:
    try:
        lines = folder.telemetry.read_bytes().splitlines()
    except OSError as error:
        return {}, [
            Problem(folder.telemetry, f"cannot be read ({error.strerror}): findings from telemetry are left out")
        ]
    rows: dict[int, list[Row]] = {}
    damaged = 0
    for line in lines:
        row = _row(line)
        if row is None:
            damaged += 1
        else:
            rows.setdefault(int(row["client"] or 0), []).append(row)
    ordered = {client: sorted(found, key=lambda row: row["epoch"] or 0) for client, found in sorted(rows.items())}
    told = f"{damaged} of {len(lines)} lines are damaged and left out"
    return ordered, [Problem(folder.telemetry, told)] if damaged else []


def _row(line: bytes) -> Row | None:
    """A line as numbers; None if it is no row of telemetry."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or not all(isinstance(row.get(key), int) for key in ("client", "epoch")):
        return None
    return row if all(value is None or isinstance(value, int | float) for value in row.values()) else None


def _upload(folder: RunFolder, client: int) -> Sent | None:
    """What a client sent; None where the file is gone or damaged."""
    try:
        with safe_open(folder.upload(client), "pt") as file:
            header = Header.model_validate_json(file.metadata()["fedshot"])
            names = list(file.keys())
            small = {name: file.get_tensor(name) for name in names if name.startswith(_READ)}
    except (OSError, SafetensorError, ValidationError, KeyError, TypeError):
        return None
    return Sent(frozenset(name.partition("/")[0] for name in names), header.class_counts, small)
