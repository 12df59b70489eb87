"""From a path to findings: every run is loaded, every diagnosis asked, then the runs are looked at together."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fedshot.changed import changed_options
from fedshot.errors import UserError
from fedshot.explain.across import ACROSS
from fedshot.explain.diagnoses import DIAGNOSES
from fedshot.explain.explained import Explained
from fedshot.explain.finding import Finding, by_severity
from fedshot.explain.loaded import NotExplained, Problem, find_runs, load, load_with
from fedshot.explain.run import Run
from fedshot.local.work import one_thread
from fedshot.record import Record


@dataclass(frozen=True)
class Explanation:
    """All that can be said about a path: runs with their findings, what holds across them, and what was left out."""

    path: Path
    runs: tuple[Explained, ...]
    across: tuple[Finding, ...]
    problems: tuple[Problem, ...]


def explain(path: str | Path) -> list[Finding]:
    """The findings about a run, or about all runs below a folder and what holds across them; the worst first."""
    found = explain_path(Path(path))
    return by_severity([*found.across, *(finding for run in found.runs for finding in run.findings)])


def explain_path(path: Path) -> Explanation:
    """The same with its runs apart, and with what could not be read."""
    folders, empty = find_runs(path)
    runs: list[Explained] = []
    problems = [Problem(folder, "an empty folder") for folder in empty]
    known: dict[tuple[str, str], str] = {}
    for folder in folders:
        try:
            run, damaged = load(folder)
            name = path.name if folder == path else str(folder.relative_to(path))
            first = known.setdefault((run.record.spec.sha256, run.record.result_sha256), name)
            if first != name:
                raise NotExplained(f"the same run as {first}")
            found = tuple(findings_of(run, name))
        except (NotExplained, UserError) as reason:  # of the latter: a rule whose options have changed since
            problems.append(Problem(folder, str(reason)))
            continue
        problems += damaged
        runs.append(Explained(folder, name, label_of(run), run.record, found))
    across = [finding for look in ACROSS.values() for finding in look(runs)] if len(folders) > 1 else []
    return Explanation(path, tuple(runs), tuple(by_severity(across)), tuple(problems))


def findings_of(run: Run, name: str = "") -> list[Finding]:
    """What every diagnosis says about a run, the worst first."""
    with one_thread(torch.device("cpu")):  # matrices of ten rows: a second thread costs more than it does
        found = [replace(finding, run=name) for diagnose in DIAGNOSES.values() for finding in diagnose(run)]
    return by_severity(found)


def severe_titles(record: Record, folder: Path) -> tuple[str, ...]:
    """The severe findings about a run whose record is not written yet, one sentence each."""
    run, _ = load_with(record, folder)
    return tuple(finding.title for finding in findings_of(run) if finding.severity == "severe")


def label_of(run: Run) -> str:
    """The method with the options that were changed."""
    spec = run.record.spec
    return " ".join(
        [spec.method, *(f"{key}={value}" for key, value in changed_options(spec.method, spec.options).items())]
    )
