"""Finds the runs below some folders and in collections of records, and sorts them.

Those of one task come side by side, the seeds of one method together. What cannot be reported is named and left out;
the rest goes on.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedshot.changed import contents, usual_settings, variant, words_of
from fedshot.errors import UserError, unknown
from fedshot.kept import records_at
from fedshot.report.agreement import recipe_in_words
from fedshot.report.wording import number_of

if TYPE_CHECKING:
    from fedshot.record import Record

TASK = ("data", "clients", "recipe", "alpha", "classes_per_client", "partition_file")  # settings that make a task


@dataclass(frozen=True)
class TaskRuns:
    """Runs that can be compared: the same data, divided by the same recipe. The first method is the reference."""

    runs: dict[str, list["Record"]]
    folders: dict[str, list[Path]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        record = next(iter(self.runs.values()))[0]
        return " · ".join([record.spec.data, number_of(record.spec.clients, "client"), recipe_in_words(record)])


@dataclass(frozen=True)
class Gathered:
    """What was found, and why the rest was left out."""

    tasks: tuple[TaskRuns, ...]
    problems: tuple[str, ...]
    records: dict[Path, "Record"] = field(default_factory=dict)  # of all tasks, by the places where they lie


def gather(
    paths: Sequence[Path], baseline: str | None = None, confined: bool = False, where: Sequence[str] = ()
) -> Gathered:
    """All finished runs below the paths.

    Args:
        paths: folders of runs, of comparisons or of studies, record files, or collections of records.
        baseline: the method that differences are taken to; the highest mean of each task if not given.
        confined: leave out runs with a link that leads out of the paths.
        where: conditions on runs as `fedshot results --where` has them; all must hold.
    """
    found: dict[Path, Record] = {}
    problems: list[str] = []
    sources: dict[Path, Callable[[], Record]] = {}
    for path in paths:
        there = dict(records_at(path))
        if not there:
            problems.append(f"{path} holds no finished run")
        sources |= there
    for place, read in sources.items():
        if confined and not any(stays_inside(place, path) for path in paths):
            problems.append(f"{place} holds a link that leads out of the folder: it is not shown")
            continue
        try:
            found[place] = read()
        except UserError as error:
            problems.append(str(error))
    found = _chosen(_once(found, problems), where)
    tasks = tuple(_by_task(found, baseline))
    labels = {label: None for task in tasks for label in task.runs}
    if baseline is not None and tasks and baseline not in labels:
        raise unknown("baseline", baseline, labels)
    return Gathered(tasks, tuple(problems), found)


def stays_inside(run: Path, root: Path) -> bool:
    """Whether no file of a run folder is a link to a place outside of the root."""
    files = [run / "spec.json", run / "record.json", run / "telemetry.jsonl", *run.glob("clients/*/*")]
    return all(file.resolve().is_relative_to(root.resolve()) for file in files)


def _once(found: dict[Path, "Record"], problems: list[str]) -> dict[Path, "Record"]:
    """Each spec once: a second run of it would count a seed twice."""
    first: dict[str, Path] = {}
    kept = {}
    for folder, record in found.items():
        other = first.setdefault(record.spec.sha256, folder)
        if other == folder:
            kept[folder] = record
        else:
            problems.append(f"{folder} repeats the spec of {other}: only the latter is reported")
    return kept


def _chosen(found: dict[Path, "Record"], where: Sequence[str]) -> dict[Path, "Record"]:
    """The runs for which all conditions hold."""
    if not where or not found:
        return found
    from fedshot.study.results import Results
    from fedshot.study.rows import row_of

    results = Results(tuple(row_of(record, place) for place, record in found.items()))
    kept = {row["run"] for row in results.some_where(",".join(where)).rows}
    return {place: record for place, record in found.items() if str(place) in kept}


def _by_task(found: dict[Path, "Record"], baseline: str | None) -> Iterator[TaskRuns]:
    tasks: dict[str, dict[Path, Record]] = {}
    for folder, record in found.items():
        key = json.dumps([getattr(record.spec, name) for name in TASK])
        tasks.setdefault(key, {})[folder] = record
    for members in tasks.values():
        groups: dict[str, list[Path]] = {}
        for folder, record in members.items():
            same = record.spec.model_dump(mode="json", exclude={"seed", *TASK})
            groups.setdefault(json.dumps(same, sort_keys=True), []).append(folder)
        by_seed = [sorted(group, key=lambda folder: members[folder].spec.seed) for group in groups.values()]
        labelled = dict(zip(_labels([members[group[0]] for group in by_seed]), by_seed, strict=True))
        order = sorted(labelled, key=lambda label: (label != baseline, -_mean([members[f] for f in labelled[label]])))
        runs = {label: [members[folder] for folder in labelled[label]] for label in order}
        yield TaskRuns(runs, {label: labelled[label] for label in order})


def _mean(records: Sequence["Record"]) -> float:
    return sum(record.final.accuracy for record in records) / len(records)


def _labels(records: Sequence["Record"]) -> list[str]:
    """The method of each record with its options as typed, followed by what sets it apart from others of that name.

    What is at its default goes without saying.
    """
    usual = [usual_settings(record.spec.method, record.spec.data) for record in records]
    short = _apart([_name(r) for r in records], [_facts(r) for r in records], usual)
    everything = [{**_facts(r), **r.spec.options, "method": r.spec.method} for r in records]
    return _apart(short, everything, [{}] * len(records))  # such as an option that a method did not have yet


def _apart(names: Sequence[str], facts: Sequence[Mapping[str, Any]], usual: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names, each followed by those facts that set it apart from its namesakes and are not usual for it."""
    labels = []
    for name, fact, common in zip(names, facts, usual, strict=True):
        peers = [other for other_name, other in zip(names, facts, strict=True) if other_name == name]
        changed = {key: value for key, value in fact.items() if key not in common or common[key] != value}
        told = [
            f"{key}={words_of(value)}"
            for key, value in changed.items()
            if any(peer.get(key) != value for peer in peers)
        ]
        labels.append(f"{name} ({', '.join(told)})" if told else name)
    return labels


def _name(record: "Record") -> str:
    method = record.spec.method
    return variant(method, record.spec.options).replace(method, Path(method).name, 1)


def _facts(record: "Record") -> dict[str, Any]:
    dumped = record.spec.model_dump(mode="json", exclude={"seed", "method", "options", *TASK})
    del dumped["files"]
    return {**dumped, **{f"content of {name}": sha256 for name, sha256 in contents(record.spec).items()}}
