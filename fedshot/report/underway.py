"""Runs that are not finished: how far they are, from what their clients have written so far."""

import re
import time
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from fedshot.errors import UserError
from fedshot.local.checkpoint import Story, read_story
from fedshot.report.gather import stays_inside
from fedshot.report.telemetry import Rows, parse_telemetry, series
from fedshot.store import RunFolder, read_spec

MOST_RUNS = 50  # shown at once
ROOM = (12, 30)  # clients of a run, epochs of a client
_DRAWN = ("client", "epoch", "base_loss", "lambda_effective")


def version(root: Path) -> str:
    """Changes when a finished run below the root comes, goes or changes."""
    digest = sha256()
    for file in sorted(root.rglob("record.json")):
        try:
            told = file.stat()
        except OSError:  # it went between listing and asking
            continue
        digest.update(f"{file} {told.st_mtime_ns} {told.st_size}\n".encode())
    return digest.hexdigest()[:16]


def under_way(root: Path) -> list[dict[str, Any]]:
    """The unfinished runs below the root, those that changed last first."""
    folders = [file.parent for file in root.rglob("spec.json") if not (file.parent / "record.json").exists()]
    found = [told for folder in folders if stays_inside(folder, root) and (told := _progress(folder, root))]
    return sorted(found, key=lambda told: told["quiet"])[:MOST_RUNS]


def _progress(folder: Path, root: Path) -> dict[str, Any] | None:
    """None for a folder that is no run, or went in between."""
    run = RunFolder(folder)
    try:
        spec = read_spec(run.spec)
        files = [run.spec, *folder.glob("clients/*/*")]
        changed = max(file.stat().st_mtime for file in files)
    except (UserError, OSError):
        return None
    ended = {number: summary for number in range(spec.clients) if (summary := run.finished(number)) is not None}
    sizes = {number: summary.samples for number, summary in ended.items()}
    stories = {k: story for k in range(spec.clients) if k not in ended and (story := read_story(run.checkpoint(k)))}
    told = [row for number in ended for row in _rows(run.client(number))]
    told += [row for story in stories.values() for row in story.rows]
    rows = [{k: row.get(k) for k in _DRAWN} for row in told]
    return {
        "name": str(folder.relative_to(root)) if folder != root else folder.name,
        "method": Path(spec.method).name,
        "seed": spec.seed,
        "clients": spec.clients,
        "done": len(ended),
        "epochs": _epochs(files, ended, stories, spec.epochs),
        "quiet": round(max(0.0, time.time() - changed)),
        "telemetry": series(rows, sizes, ROOM),
    }


def _rows(client: Path) -> Rows:
    file = client / "telemetry.jsonl"
    try:
        return parse_telemetry(file, file.read_bytes())
    except (OSError, UserError):
        return []


def _epochs(files: Sequence[Path], ended: Collection[int], stories: Mapping[int, Story], epochs: int) -> str:
    """The furthest snapshot or checkpoint of a client under way."""
    reached = [
        (int(at[1]), file.parent.name)
        for file in files
        if (at := re.fullmatch(r"at_(\d+)\.safetensors", file.name)) and file.parent.name not in map(str, ended)
    ]
    reached += [(story.epoch, str(number)) for number, story in stories.items()]
    if not reached:
        return f"{epochs} for each client"
    epoch, client = max(reached)
    return f"client {client} past {epoch} of {epochs}"
