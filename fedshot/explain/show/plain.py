"""What all forms share: which findings are shown, where they were seen, how often they recur; and JSON."""

import math
from dataclasses import asdict, replace
from typing import Any

from fedshot.explain.across import by_label
from fedshot.explain.engine import Explanation
from fedshot.explain.explained import Explained
from fedshot.explain.finding import SEVERITIES, Finding, Series, Severity, listed
from fedshot.report.wording import number_of, sparkline

MOST_MARKS = 40  # characters of a sparkline


def selected(explanation: Explanation, least: Severity) -> Explanation:
    """The same with findings of that severity and worse alone."""
    shown = SEVERITIES[: SEVERITIES.index(least) + 1]

    def keep(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        return tuple(finding for finding in findings if finding.severity in shown)

    runs = tuple(replace(run, findings=keep(run.findings)) for run in explanation.runs)
    return replace(explanation, runs=runs, across=keep(explanation.across))


def summary(run: Explained) -> str:
    """A run in one line."""
    spec, final = run.record.spec, run.record.final
    epochs = number_of(final.epoch, "local epoch")
    return f"{run.label} · {spec.data} · seed {spec.seed} · {100 * final.accuracy:.1f} % after {epochs}"


def where(finding: Finding) -> str:
    """The clients and epochs in which it was seen; empty where it is about the run as a whole."""
    said = [listed(finding.clients, "client")] if finding.clients else []
    if finding.epochs:
        first, last = finding.epochs
        said.append(f"epoch {first}" if first == last else f"epochs {first} to {last}")
    return ", ".join(said)


def spark(series: Series) -> str:
    """A series in one line of blocks, by its logarithm where it spans decades.

    >>> spark(Series("λ", (1, 2, 3), (1.0, 10.0, 100.0), log=True))
    '▁▅█'
    """
    step = math.ceil(len(series.values) / MOST_MARKS)
    values = [*series.values[::step], series.values[-1]] if step > 1 else list(series.values)
    return sparkline([math.log(value) for value in values] if series.log and min(values) > 0 else values)


def ends(series: Series) -> str:
    """The first and the last value, with their epochs."""
    values, epochs = series.values, series.epochs
    return f"{values[0]:.3g} in epoch {epochs[0]} → {values[-1]:.3g} in epoch {epochs[-1]}"


def recurrence(explanation: Explanation) -> list[tuple[str, Severity, dict[str, tuple[int, int]]]]:
    """For each finding: its name, its worst severity, and in how many of how many runs of each method it is."""
    methods = by_label(explanation.runs)
    worst: dict[str, Severity] = {}
    for finding in (finding for run in explanation.runs for finding in run.findings):
        before = worst.get(finding.name, finding.severity)
        worst[finding.name] = min(before, finding.severity, key=SEVERITIES.index)
    rows = [
        (name, worst[name], {label: (sum(run.has(name) for run in runs), len(runs)) for label, runs in methods.items()})
        for name in worst
    ]
    return sorted(rows, key=lambda row: (SEVERITIES.index(row[1]), -sum(count for count, _ in row[2].values())))


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Everything as plain values."""
    return {
        "path": str(explanation.path),
        "runs": [
            {
                "run": run.name,
                "label": run.label,
                "seed": run.record.spec.seed,
                "accuracy": run.record.final.accuracy,
                "findings": [_plain(finding) for finding in run.findings],
            }
            for run in explanation.runs
        ],
        "across": [_plain(finding) for finding in explanation.across],
        "not_read": [{"path": str(problem.path), "reason": problem.reason} for problem in explanation.problems],
    }


def _plain(finding: Finding) -> dict[str, Any]:
    """A finding whose numbers JSON can hold; a share stays one, and is called so."""
    found = asdict(finding)
    for fact in found["facts"]:
        if fact["unit"] == "%" and not isinstance(fact["value"], str):
            fact["unit"] = "share"
        if isinstance(fact["value"], float) and not math.isfinite(fact["value"]):
            fact["value"] = None
    return found
