"""One HTML file with everything about some runs: no network, light and dark, on a phone and in print."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedshot.errors import UserError
from fedshot.report.cells import comparison_cells, cost_cells
from fedshot.report.comparison import Comparison, Runs, comparison
from fedshot.report.comparison_table import known
from fedshot.report.exhibits import Exhibit
from fedshot.report.gather import TaskRuns
from fedshot.report.payload import as_script, payload
from fedshot.report.reproduce import python_lines, shell_line
from fedshot.report.stills import detail_figures, other_stills, section_figures
from fedshot.report.wording import bytes_in_words, number_of, seconds_in_words
from fedshot.study.statistics import percent, points

if TYPE_CHECKING:
    from fedshot.record import Record

MOST_CLIENTS = 30  # rows of a table of clients
_SCRIPT = ("ground", "charts", "choices", "figures", "page")  # in the order in which they need each other


def write_page(runs: Runs, folders: Mapping[str, Sequence[Path]], path: Path, command: str | None = None) -> Path:
    """Writes the page of the runs of one task and returns its path. Equal runs give equal bytes.

    Args:
        runs: records of each method.
        folders: run folders of each method in the order of its records; their telemetry is drawn where it is found.
        path: the HTML file; replaced if it exists.
        command: what was typed to get these runs, for the reader who wants them again.
    """
    task = TaskRuns(
        {label: list(records) for label, records in runs.items()},
        {label: list(paths) for label, paths in folders.items()},
    )
    write_report([task], [], path, command)
    return path


def write_report(
    tasks: Sequence[TaskRuns], problems: Sequence[str], path: Path, command: str | None = None
) -> list[str]:
    """Writes the page of several tasks, each with a comparison of its own.

    Returns: the problems, which the page names, and those that came up while it was made.
    """
    from fedshot.store import write_atomic

    if path.is_dir():
        raise UserError(f"{path} is a folder: give the name of a file, such as {path / 'report.html'}")
    shown = contents(tasks, problems, command)
    write_atomic(path, render(shown).encode())
    return list(shown["problems"])


def render(shown: Mapping[str, Any]) -> str:
    """The page as text."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_part("page.html")).render(shown)


def contents(
    tasks: Sequence[TaskRuns], problems: Sequence[str], command: str | None, live: str | None = None
) -> dict[str, Any]:
    """What the template shows, by name.

    Args:
        live: the version of what is shown, for a page that a server renews while runs are under way. Such a page has
            no figures for readers without script, who would not see it change either.
    """
    named = [*problems]
    sections = [_section(task, number, live is None) for number, task in enumerate(tasks)]
    data = payload(tasks, named)
    records = [record for task in tasks for of_label in task.runs.values() for record in of_label]
    detail = detail_figures(tasks[0], live is None) if tasks else {}
    drawn = [*detail.values(), *(shown for section in sections for shown in section["figures"].values())]
    return {
        "title": _title(tasks),
        "problems": named,
        "sections": sections,
        "findings": dict(_findings(tasks)) if live is None else {},
        "detail": detail,
        "stills": other_stills(tasks, sum(len(shown.svg) for shown in drawn)) if live is None else [],
        "cost": [cost_cells(label, of_label) for task in tasks for label, of_label in task.runs.items()],
        "environments": _environments(records),
        "command": command,
        "live": live,
        "data": as_script(data),
        "style": _part("page.css"),
        "script": "".join(_part(f"script/{name}.js") for name in (*_SCRIPT, *(["live"] if live else []))),
        "most_clients": MOST_CLIENTS,
        "bytes_in_words": bytes_in_words,
        "seconds_in_words": seconds_in_words,
    }


def _part(name: str) -> str:
    return files("fedshot.report").joinpath(name).read_text(encoding="utf-8")


def _section(task: TaskRuns, number: int, still: bool) -> dict[str, Any]:
    """The comparison of one task and its figures."""
    found = comparison(task.runs)
    figures: dict[str, Exhibit] = section_figures(task.runs, number, still)
    told = known(found)
    return {
        "name": task.name,
        "comparison": found,
        "lead": lead(found),
        "head": tuple(comparison_cells(found.rows[0], told)),
        "rows": [(row, comparison_cells(row, told)) for row in found.rows],
        "figures": figures,
        "runs": task.runs,
        "again": {label: (shell_line(of_label), python_lines(of_label)) for label, of_label in task.runs.items()},
    }


def _title(tasks: Sequence[TaskRuns]) -> str:
    if not tasks:
        return "no finished run yet"
    data = {record.spec.data for task in tasks for records in task.runs.values() for record in records}
    labels = {label: None for task in tasks for label in task.runs}
    name = next(iter(labels)) if len(labels) == 1 else number_of(len(labels), "method")
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


def _findings(tasks: Sequence[TaskRuns]) -> Iterator[tuple[str, list[str]]]:
    """Of each method that has any: each finding once, as its first run shows it, with the seeds that do."""
    for task in tasks:
        for label, records in task.runs.items():
            folders: list[Path | None] = [*task.folders.get(label, [])] or [None] * len(records)
            seen: dict[str, tuple[str, list[str]]] = {}
            for record, folder in zip(records, folders, strict=True):
                now = _explained(folder)
                told = {title: title for title in record.findings if f"severe: {title}" not in now.values()} | now
                for kind, title in told.items():
                    seen.setdefault(kind, (title, []))[1].append(str(record.spec.seed))
            if seen:
                name = f"{task.name}: {label}" if len(tasks) > 1 else label
                yield name, [f"{title} (seed {', '.join(seeds)})" for title, seeds in seen.values()]


def _explained(folder: Path | None) -> dict[str, str]:
    """What `fedshot explain` says about a run, by the name of the finding, without its mere notes."""
    if folder is None or not (folder / "record.json").is_file():
        return {}
    from fedshot.explain import explain

    return {f.name: f"{f.severity}: {f.title}" for f in explain(folder) if f.severity != "note"}


def _environments(records: Sequence["Record"]) -> list[dict[str, str]]:
    """Versions, device and commit; one entry for each combination that occurs."""
    told = [{**r.versions, "device": r.device, "commit": r.commit or "not from a checkout"} for r in records]
    return [entry for place, entry in enumerate(told) if entry not in told[:place]]
