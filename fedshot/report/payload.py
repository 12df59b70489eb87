"""The numbers that a page draws: compact, rounded, and few enough for a file that is opened on a phone."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedshot.errors import UserError
from fedshot.report.comparison import Runs, accuracy_difference
from fedshot.report.gather import TaskRuns
from fedshot.report.geometry import geometry, read_prototypes
from fedshot.report.style import COLOURS, colour
from fedshot.report.telemetry import Rows, read_telemetry, room_for, rounded, series
from fedshot.study.statistics import points

if TYPE_CHECKING:
    from fedshot.record import Record

MOST_CELLS = 25_000  # of a kind of map, over all runs of a page together
MOST_HELD = 10_000  # cells of a partition

Numbers = dict[str, Any]  # as JSON has them


def payload(tasks: Sequence[TaskRuns], problems: list[str]) -> Numbers:
    """All that the page's script draws. What cannot be read is added to the problems and left out.

    Maps are given to the runs while they fit: to all runs, or to the first seeds of the first methods.
    """
    runs = [
        (number, label, record, folder)
        for number, task in enumerate(tasks)
        for label, records in task.runs.items()
        for record, folder in zip(records, _folders(task, label), strict=True)
    ]
    telemetry = [_rows_of(folder, problems) for *_, folder in runs]
    room = room_for(telemetry)
    partitions: dict[str, Numbers] = {}
    told = []
    for (number, label, record, _), rows in zip(runs, telemetry, strict=True):
        partitions.setdefault(record.partition["fingerprint"], _partition(record))
        sizes = {client.id: client.samples for client in record.clients}
        of_run = {"task": number, "label": label, "telemetry": series(rows, sizes, room)}
        told.append({**of_run, **_run(record)})
    _add_maps(told, runs)
    return {
        "colours": COLOURS,
        "tasks": [{"name": task.name, "methods": _methods(task.runs)} for task in tasks],
        "runs": told,
        "partitions": partitions,
    }


def as_script(data: Numbers) -> str:
    """JSON that can stand inside a script element: nothing in it closes the element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _folders(task: TaskRuns, label: str) -> Sequence[Path | None]:
    return task.folders.get(label) or [None] * len(task.runs[label])


def _rows_of(folder: Path | None, problems: list[str]) -> Rows:
    try:
        return read_telemetry(folder) if folder else []
    except UserError as error:
        problems.append(str(error))
    except OSError as error:
        problems.append(f"{folder}: its telemetry cannot be read: {error.strerror}")
    return []


def _methods(runs: Runs) -> list[Numbers]:
    """Name and colour of each method, and its paired difference to every other: [text, mean in points]."""
    return [
        {
            "label": label,
            "colour": colour(place),
            "against": {
                other: [points(found), rounded(100 * (found.mean or 0.0))]
                for other, reference in runs.items()
                if other != label and (found := accuracy_difference(records, reference))
            },
        }
        for place, (label, records) in enumerate(runs.items())
    ]


def _run(record: "Record") -> Numbers:
    return {
        "seed": record.spec.seed,
        "accuracy": rounded(100 * record.final.accuracy),
        "curve": [[point.epoch, rounded(100 * point.accuracy)] for point in record.curve],
        "classes": _percents(record.final.per_class_accuracy),
        "partition": record.partition["fingerprint"],
    }


def _percents(shares: Sequence[float | None]) -> list[int | None]:
    return [None if share is None else round(100 * share) for share in shares]


def _partition(record: "Record") -> Numbers:
    """Samples and entropy of all clients, and what the first of them hold of each class."""
    told, counts = record.partition, record.partition["class_counts"]
    return {"sizes": told["sizes"], "bits": told["entropy_bits"], "counts": counts[: MOST_HELD // len(counts[0]) or 1]}


def _add_maps(told: list[Numbers], runs: Sequence[tuple[int, str, "Record", Path | None]]) -> None:
    """Confusion, clients alone and prototypes of each run, the first seeds first, while there is room."""
    names = [(number, label) for number, label, *_ in runs]
    first = [place for place, name in enumerate(names) if name not in names[:place]]
    room = {"confusion": MOST_CELLS, "alone": MOST_CELLS, "geometry": MOST_CELLS}
    for place in [*first, *(place for place in range(len(runs)) if place not in first)]:
        record, folder = runs[place][2:]
        classes = len(record.final.confusion)
        cells = {"confusion": classes**2, "alone": classes * len(record.clients), "geometry": classes**2}
        for kind, make in _MAPS.items():
            fits = cells[kind] <= room[kind]
            told[place][kind] = found = make(record, folder) if fits else None
            room[kind] -= cells[kind] if found else 0


def _alone(record: "Record") -> dict[int, list[int | None]] | None:
    """Recognised share of each class by each fused client."""
    return {c.id: _percents(c.per_class_alone) for c in record.clients if c.per_class_alone is not None} or None


def _geometry(record: "Record", folder: Path | None) -> Numbers | None:
    return None if folder is None else geometry(read_prototypes(folder, record), record)


_MAPS: dict[str, Callable[["Record", Path | None], Any]] = {
    "confusion": lambda record, _: record.final.confusion,
    "alone": lambda record, _: _alone(record),
    "geometry": _geometry,
}
