"""Figures for a paper: leaderboard, curves, partition and weights, each in files of its own."""

import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedshot.errors import UserError, unknown
from fedshot.report.figures import accuracy_bars, accuracy_curves, has_lambda, lambda_paths
from fedshot.report.gather import TaskRuns
from fedshot.report.heat import partition_map
from fedshot.report.style import INK, styled
from fedshot.report.telemetry import read_telemetry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("pdf", "svg", "png")


def parse_formats(text: str) -> list[str]:
    """Formats as typed.

    >>> parse_formats("pdf, svg")
    ['pdf', 'svg']
    """
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not names:
        raise UserError(f"--format {text!r} names no format: write some of {', '.join(FORMATS)}")
    for name in names:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    return names


def write_figures(tasks: Sequence[TaskRuns], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Writes the figures of all tasks and returns their files. Equal runs give equal files.

    Several tasks get a folder each.
    """
    written = []
    for task in tasks:
        place = folder / file_name(task.name) if len(tasks) > 1 else folder
        place.mkdir(parents=True, exist_ok=True)
        for name, figure in _figures(task):
            _in_black(figure)
            written += [_save(figure, place / f"{name}.{kind}") for kind in formats]
    return written


def file_name(text: str) -> str:
    """A name for a file from any text.

    >>> file_name("digits · 5 clients · α = 0.05")
    'digits-5-clients-alpha-0.05'
    """
    return re.sub(r"[^\w.]+", "-", text.replace("α", "alpha")).strip("-.") or "figure"


def _figures(task: TaskRuns) -> Iterator[tuple[str, "Figure"]]:
    yield "leaderboard", accuracy_bars(task.runs)
    if any(len(record.curve) > 1 for records in task.runs.values() for record in records):
        yield "curves", accuracy_curves(task.runs)
    partitions = {r.partition["fingerprint"]: r for records in task.runs.values() for r in records}
    for record in partitions.values():
        yield f"partition-seed{record.spec.seed}-{record.partition['fingerprint'][:6]}", partition_map(record.partition)
    for label, folders in task.folders.items():
        for record, run in zip(task.runs[label], folders, strict=True):
            try:
                rows = read_telemetry(run)
            except (UserError, OSError):
                continue  # named where the page is made
            if has_lambda(rows):
                sizes = {client.id: client.samples for client in record.clients}
                yield f"lambda-{file_name(label)}-seed{record.spec.seed}", lambda_paths(rows, sizes)


def _in_black(figure: "Figure") -> None:
    """Text, axes and whiskers in black: the ink of a page stands between light and dark."""
    from matplotlib.colors import same_color

    for artist in figure.findobj():
        for part in ("color", "edgecolor", "markeredgecolor", "markerfacecolor"):
            ink = getattr(artist, f"get_{part}", lambda: None)()
            if (
                isinstance(ink, str | tuple)
                and len(ink)
                and same_color(ink[:3] if isinstance(ink, tuple) else ink, INK)
            ):
                getattr(artist, f"set_{part}")("black")


def _save(figure: "Figure", file: Path) -> Path:
    import matplotlib

    no_date = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[file.suffix[1:]]
    with styled(), matplotlib.rc_context({"svg.hashsalt": file.name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure.savefig(file, metadata=no_date, dpi=200)
    return file
