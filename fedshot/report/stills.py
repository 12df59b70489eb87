"""Which figures of a page are also there without script, while they are small enough together."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fedshot.errors import UserError
from fedshot.report.comparison import Runs
from fedshot.report.exhibits import (
    Exhibit,
    accuracy_exhibits,
    class_exhibit,
    client_class_exhibit,
    lambda_exhibit,
    partition_exhibit,
)
from fedshot.report.gather import TaskRuns
from fedshot.report.telemetry import Rows, read_telemetry, thin

MOST_TASKS = 3  # whose comparison is drawn without script
MOST_NARROW_CLASSES = 12  # in a map of half the width
MOST_POINTS = 25  # of a client in a figure of weights
MOST_BYTES = 200_000  # of all figures for readers without script


def section_figures(runs: Runs, number: int, still: bool) -> dict[str, Exhibit]:
    """The figures of a comparison by kind, drawn for readers without script if `still`."""
    if still and number < MOST_TASKS:
        classes = replace(class_exhibit(runs, f"-{number}"), wide=not _few_classes(runs))
        return {**accuracy_exhibits(runs, f"-{number}"), "classes": classes}
    curves = any(len(record.curve) > 1 for records in runs.values() for record in records)
    shown = {
        "dots": Exhibit("Accuracy", "A mark is a seed, a bar the mean; a thread joins the runs of one seed.", ""),
        "curves": Exhibit("Accuracy over local epochs", "Mean over seeds; band: one sample deviation.", ""),
        "classes": Exhibit("Class by class", "Recognised share of each class in percent, mean over seeds.", ""),
    }
    shown["classes"] = replace(shown["classes"], wide=not _few_classes(runs))
    return {kind: figure for kind, figure in shown.items() if curves or kind != "curves"}


def _few_classes(runs: Runs) -> bool:
    """Whether a map of all classes fits half the width."""
    return len(next(iter(runs.values()))[0].final.confusion) <= MOST_NARROW_CLASSES


def detail_figures(task: TaskRuns, still: bool) -> dict[str, Exhibit]:
    """The figures of one run by kind. Without script the first run of the task is shown."""
    label, records = next(iter(task.runs.items()))
    partition = partition_exhibit(records[0]) if still else None
    weight = lambda_exhibit(label, records[0], _telemetry(task, label), 0) if still else None
    alone = client_class_exhibit(label, records[0], 0) if still else None
    shown = {
        "partition": Exhibit(
            "Who holds what",
            "Samples of each client and class; the stronger the colour, the more, by logarithm. "
            "Rows: samples and label entropy of a client.",
            partition.svg if partition else "",
            heat=True,
        ),
        "lambda": Exhibit(
            "Weight of the alignment loss",
            "Raw: the policy's own λ. Effective: what multiplied the alignment gradient. Predicted equilibrium: where "
            "raw would settle if the losses stood still. Attenuation: the value of the policy's schedule.",
            weight.svg if weight else "",
        ),
        "losses": Exhibit("Loss terms", "Means over the steps of an epoch, before any weighting.", ""),
        "cosines": Exhibit("Prototypes against the ETF", "Cosines of the clients' mean prototypes, unit length.", ""),
        "plane": Exhibit(
            "Prototypes in the plane",
            "Ring: mean prototype of a class. Small marks: that of each client.",
            "",
        ),
        "alone": Exhibit(
            "Clients alone and fused",
            "Recognised share of each class in percent. Framed: the client holds samples of the class.",
            alone.svg if alone else "",
            heat=True,
        ),
        "confusion": Exhibit("Confusion", "Images of each true class by what was predicted. Framed: right.", ""),
    }
    narrow = ("cosines", "plane", *(("alone", "confusion") if _few_classes(task.runs) else ()))
    return {kind: replace(figure, wide=kind not in narrow) for kind, figure in shown.items()}


def other_stills(tasks: Sequence[TaskRuns], used: int) -> list[Exhibit]:
    """Weights and clients of the other methods, for readers without script, while there is room."""
    kept: list[Exhibit] = []
    for shown in _stills(tasks):
        used += len(shown.svg)
        if used > MOST_BYTES:
            break
        kept.append(shown)
    return kept


def _stills(tasks: Sequence[TaskRuns]) -> Iterator[Exhibit]:
    methods = [(task, label, records) for task in tasks for label, records in task.runs.items()]
    for number, (task, label, records) in enumerate(methods[1:], start=1):
        for found in (
            lambda_exhibit(label, records[0], _telemetry(task, label), number),
            client_class_exhibit(label, records[0], number),
        ):
            if found is not None:
                yield found


def _telemetry(task: TaskRuns, label: str) -> Rows:
    """Of the first run, thinned; none where it is gone or damaged, which the page says elsewhere."""
    folders: Sequence[Path] = task.folders.get(label, [])
    try:
        rows = read_telemetry(folders[0]) if folders else []
    except (UserError, OSError):
        return []
    clients = dict.fromkeys(row["client"] for row in rows)
    return [row for client in clients for row in thin([r for r in rows if r["client"] == client], MOST_POINTS)]
