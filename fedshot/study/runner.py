"""Runs what a plan has left to do. One run that fails stops no other; finished runs and clients are kept."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fedshot.engines.job import Job, Watch
from fedshot.experiment import Execution, run_all
from fedshot.record import Record, read_record
from fedshot.sharing import family_of
from fedshot.store import write_atomic
from fedshot.study.plan import Planned, clear_begun, stored
from fedshot.study.recipe import Recipe

_AT_ONCE = 24  # runs whose models and data are in memory together
Outcome = Record | Exception
Ended = Callable[[Planned, Outcome], None]  # is told of each run as it ends


def write_definition(recipe: Recipe, plan: Sequence[Planned], out: Path) -> Path:
    """Keeps what was asked, and which folder holds which cell."""
    runs = [{"at": dict(planned.cell.at), "run": planned.folder.name} for planned in plan]
    text = json.dumps({"name": recipe.name, "study": recipe.definition, "runs": runs}, indent=1, default=str)
    file = out / "studies" / f"{recipe.name}.json"
    write_atomic(file, text.encode())
    return file


def run_plan(plan: Sequence[Planned], execution: Execution, watch: Watch, ended: Ended) -> list[Outcome]:
    """How every run of the plan ended, in its order. `ended` is told once for each folder, also of earlier runs."""
    outcomes: dict[Path, Outcome] = {}
    unique = {planned.folder: planned for planned in plan}  # cells may ask for the same run under two names

    def keep(planned: Planned, outcome: Outcome) -> None:
        outcomes[planned.folder] = outcome
        ended(planned, outcome)

    for planned in unique.values():
        if planned.state == "done" and (record := read_record(planned.folder / "record.json")):
            keep(planned, record)
    left = [planned for planned in unique.values() if planned.folder not in outcomes]
    donors = stored(left[0].folder.parents[1]) if left else []
    for chunk in chunks(left):
        following = _Following(chunk, watch, keep)
        for planned in chunk:
            clear_begun(planned.folder)
        try:
            requests = [(p.spec, p.folder) for p in chunk]
            run_all(requests, replace(execution, resume=True), following, donors)
        except Exception as error:  # of all of them at once: a lost device, a full disk
            for planned in chunk:
                if planned.folder not in outcomes:
                    keep(planned, error)
    return [outcomes[planned.folder] for planned in plan]


def chunks(plan: Sequence[Planned]) -> Iterator[list[Planned]]:
    """Parts of a plan that share a data set and fit in memory together; runs that share clients are in the same one."""
    families: dict[tuple[str, str], list[Planned]] = {}
    names = list(dict.fromkeys(planned.spec.data for planned in plan))
    for planned in sorted(plan, key=lambda planned: names.index(planned.spec.data)):
        families.setdefault((planned.spec.data, family_of(planned.spec)), []).append(planned)
    part: list[Planned] = []
    for (name, _), family in families.items():
        if part and (part[0].spec.data != name or len(part) + len(family) > _AT_ONCE):
            yield part
            part = []
        part = [*part, *family]
    if part:
        yield part


class _Following(Watch):
    """Passes on what happens in a part of the plan."""

    def __init__(self, chunk: Sequence[Planned], watch: Watch, ended: Ended) -> None:
        self.chunk, self.watch, self.ended = chunk, watch, ended

    def planned(self, jobs: Sequence[Job]) -> None:
        self.watch.planned(jobs)

    def epoch(self, job: Job, epoch: int) -> None:
        self.watch.epoch(job, epoch)

    def server(self, text: str) -> None:
        self.watch.server(text)

    def finished(self, index: int, outcome: Outcome) -> None:
        self.ended(self.chunk[index], outcome)
