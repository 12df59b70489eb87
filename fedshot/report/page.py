"""One HTML file with everything about some runs: no network, light and dark, phone and print."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedshot.errors import UserError
from fedshot.report.comparison import Comparison, Row, Runs, comparison, difference_in_words, legend
from fedshot.report.exhibits import (
    Exhibit,
    accuracy_exhibits,
    class_exhibit,
    client_class_exhibit,
    lambda_exhibit,
    partition_exhibit,
    read_telemetry,
)
from fedshot.report.reproduce import python_lines
from fedshot.report.wording import bytes_in_words, number_of, seconds_in_words
from fedshot.study.statistics import percent, points

if TYPE_CHECKING:
    from fedshot.record import Record


@dataclass(frozen=True)
class Cell:
    """A cell of the comparison: what is read, and what it is sorted by."""

    text: str
    value: float | str


def write_page(runs: Runs, folders: Mapping[str, Sequence[Path]], path: Path, command: str | None = None) -> Path:
    """Writes the page of these runs and returns its path. Equal runs give equal bytes.

    Args:
        runs: records of each method.
        folders: run folders of each method in the order of its records; their telemetry is drawn where it is found.
        path: the HTML file; replaced if it exists.
        command: what was typed to get these runs, for the reader who wants them again.
    """
    from jinja2 import Environment, StrictUndefined

    from fedshot.store import write_atomic

    if path.is_dir():
        raise UserError(f"{path} is a folder: give the name of a file, such as {path / 'report.html'}")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files("fedshot.report").joinpath("page.html").read_text(encoding="utf-8"))
    write_atomic(path, template.render(contents(runs, folders, command)).encode())
    return path


def contents(runs: Runs, folders: Mapping[str, Sequence[Path]], command: str | None) -> dict[str, Any]:
    """What the template shows, by name."""
    found = comparison(runs)
    records = [record for of_label in runs.values() for record in of_label]
    lambdas = [
        lambda_exhibit(label, of_label[0], read_telemetry(folders[label][0]), number)
        for number, (label, of_label) in enumerate(runs.items())
        if folders.get(label)
    ]
    alone = [client_class_exhibit(label, of_label[0], n) for n, (label, of_label) in enumerate(runs.items())]
    return {
        "title": _title(runs),
        "comparison": found,
        "lead": lead(found),
        "legend": legend(found),
        "head": tuple(_cells(found.rows[0])),
        "rows": [(row, _cells(row)) for row in found.rows],
        "figures": [*accuracy_exhibits(runs), partition_exhibit(records[0]), class_exhibit(runs)],
        "lambdas": _present(lambdas),
        "alone": _present(alone),
        "runs": runs,
        "findings": {label: _findings(of_label) for label, of_label in runs.items() if _findings(of_label)},
        "environments": _environments(records),
        "command": command,
        "python_lines": {label: python_lines(of_label) for label, of_label in runs.items()},
        "bytes_in_words": bytes_in_words,
        "seconds_in_words": seconds_in_words,
    }


def _title(runs: Runs) -> str:
    data = {record.spec.data for records in runs.values() for record in records}
    name = next(iter(runs)) if len(runs) == 1 else number_of(len(runs), "method")
    return f"{name} on {', '.join(sorted(data))}"


def lead(comparison: Comparison) -> str:
    """The result in a sentence, without more certainty than the seeds give."""
    best = comparison.best
    if best is None:
        return "The methods ran on different seeds: compare the paired differences, not the means."
    marks = f" ({', '.join(best.marks)})" if best.marks else ""
    result = f"{best.label}{marks}, {percent(best.accuracy)}"
    if len(comparison.rows) == 1:
        return f"Accuracy on the test images, in percent: {result}."
    sentence = f"Highest mean accuracy, in percent: {result}."
    if best.difference is None:
        return sentence
    told = f"{sentence} Against {comparison.reference}, in points: {points(best.difference)}."
    low, high = best.difference.low, best.difference.high
    open_question = low is not None and high is not None and low <= 0 <= high
    return f"{told} These seeds do not tell the two apart." if open_question else told


def _cells(row: Row) -> dict[str, Cell]:
    """The columns of the comparison, by name."""
    shares = {
        "balanced": row.balanced,
        "worst class": row.worst_class,
        "calibration error": row.calibration_error,
        "oracle routing": row.oracle_routing,
    }
    mean = 0.0 if row.difference is None or row.difference.mean is None else row.difference.mean
    return {
        "accuracy": Cell(percent(row.accuracy), row.accuracy.mean),
        "difference": Cell(difference_in_words(row), mean),
        **{name: Cell(f"{100 * share.mean:.1f}", share.mean) for name, share in shares.items()},
        "upload of a client": Cell(bytes_in_words(row.upload_bytes), row.upload_bytes),
        "all clients": Cell(seconds_in_words(row.client_seconds), row.client_seconds),
        "server": Cell(seconds_in_words(row.server_seconds), row.server_seconds),
        "models kept": Cell(str(row.models_kept), row.models_kept),
        "phases": Cell(str(row.phases), row.phases),
        "rule": Cell("inductive" if row.inductive else "transductive", "i" if row.inductive else "t"),
    }


def _present(exhibits: Sequence[Exhibit | None]) -> list[Exhibit]:
    return [exhibit for exhibit in exhibits if exhibit is not None]


def _findings(records: Sequence["Record"]) -> list[str]:
    """Each finding once, with the seeds that show it."""
    seeds: dict[str, list[str]] = {}
    for record in records:
        for finding in record.findings:
            seeds.setdefault(finding, []).append(str(record.spec.seed))
    return [f"{finding} (seed {', '.join(shown)})" for finding, shown in seeds.items()]


def _environments(records: Sequence["Record"]) -> list[dict[str, str]]:
    """Versions, device and commit; one entry for each combination that occurs."""
    told = [{**r.versions, "device": r.device, "commit": r.commit or "not from a checkout"} for r in records]
    return [entry for place, entry in enumerate(told) if entry not in told[:place]]
