"""A plan carried out: parts of it, what fails in common, and what a person is shown meanwhile."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedshot.engines.job import Job, Watch
from fedshot.experiment import Execution
from fedshot.record import Record
from fedshot.spec import Spec
from fedshot.study import runner
from fedshot.study.grid import cells_of
from fedshot.study.live import LiveTable
from fedshot.study.plan import Planned, make_plan


@pytest.fixture
def plan(quick: Callable[..., Spec], tmp_path: Path) -> list[Planned]:
    specs = [quick(method, seed=seed) for method in ("fafi", "etf") for seed in (1, 2)]
    return make_plan(cells_of(specs), tmp_path, None)


def test_parts_share_their_data_and_are_not_too_large(plan: list[Planned]) -> None:
    def on(data: str, seed: int = 1, fusion: str = "features") -> Planned:
        spec = plan[0].spec.model_copy(update={"data": data, "seed": seed, "fusion": fusion})
        return Planned(plan[0].cell, spec, plan[0].folder, "new", plan[0].sizes, ())

    seeds = range(20)
    parts = list(runner.chunks([on(data, seed) for seed in seeds for data in ("digits", "svhn")] + [on("digits", 30)]))
    assert [(part[0].spec.data, len(part)) for part in parts] == [("digits", 21), ("svhn", 20)]
    assert all(len({planned.spec.data for planned in part}) == 1 for part in parts)
    rules = [on("digits", seed, rule) for rule in ("features", "logits", "average", "moments") for seed in range(7)]
    parts = list(runner.chunks(rules))
    assert [[planned.spec.seed for planned in part] for part in parts] == [
        [seed for seed in range(6) for _ in range(4)],
        [6] * 4,
    ]


def test_what_fails_in_common_fails_its_own_part_alone(
    plan: list[Planned], finished: Callable, quick: Callable[..., Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    record, calls = finished(quick("fafi")).record, []

    def fake(requests: Any, execution: Execution, watch: Watch, donors: Any) -> None:
        calls.append(len(requests))
        watch.server("half of it is asked")
        if len(calls) == 1:
            watch.finished(0, record)
            raise OSError("disk full")
        for index in range(len(requests)):
            watch.finished(index, record)

    monkeypatch.setattr(runner, "run_all", fake)
    monkeypatch.setattr(runner, "_AT_ONCE", 2)
    told: list[Path] = []
    live = LiveTable(plan)
    outcomes = runner.run_plan(plan, Execution(), live, lambda planned, _: told.append(planned.folder))
    assert live.line().endswith("; half of it is asked")
    assert [isinstance(outcome, Record) for outcome in outcomes] == [True, False, True, True]
    assert str(outcomes[1]) == "disk full" and told == [planned.folder for planned in plan]


def test_the_table_counts_runs_clients_and_epochs(
    plan: list[Planned], finished: Callable, quick: Callable[..., Spec], capsys: pytest.CaptureFixture[str]
) -> None:
    record = finished(quick("fafi")).record
    live = LiveTable(plan)
    assert live.seconds_left() is None and "starting" in live.line()
    with live:
        live.server("training a student")
        assert live.line().endswith("; training a student")
        live.epoch(Job(plan[1].spec, 0, 40, plan[1].folder, None), 1)
        assert "student" not in live.line()
        live.ended(plan[0], record)
        live.ended(plan[2], RuntimeError("no"))
    table = live.table()
    cells = [list(column.cells) for column in table.columns]
    assert cells == [["fafi", "etf"], ["2", "2"], ["1", "0"], ["0", "1"], ["1", "0"], ["3/6", "0/6"], ["7/12", "0/12"]]
    assert live.line().startswith("1 of 4 runs done, 1 failed, 6% of the work of this call, about ")
    seconds = live.seconds_left()
    assert seconds is not None and seconds > 0
    printed = capsys.readouterr()
    assert printed.out == "" and "[1/4] fafi seed 1" in printed.err and "failed: no" in printed.err


def test_a_run_that_waits_for_another_has_no_work_of_its_own(quick: Callable[..., Spec], tmp_path: Path) -> None:
    rules = ("features", "logits", "moments")
    specs = [quick("fafi", fusion=rule, evaluate_at=(2,)) for rule in rules]
    plan = make_plan(cells_of(specs), tmp_path, None)
    assert [planned.shared for planned in plan] == [(), (0, 1, 2), (0, 1, 2)]
    assert [planned.work for planned in plan] == [2 * 90, 0, 0]
    live = LiveTable(plan)
    assert live.work == 180
    runner.run_plan(plan[:1], Execution(), live, live.ended)
    assert live.line().startswith("1 of 3 runs done, 0 failed, 100% of the work of this call, about 0.0")
    later = make_plan(cells_of(specs), tmp_path, None)
    assert [planned.state for planned in later] == ["done", "new", "new"]
    assert [planned.work for planned in later] == [0, 0, 0], "the first has trained for all"
    with_snapshots = make_plan(cells_of([quick("fafi", fusion=rule) for rule in rules]), tmp_path, None)
    assert [planned.to_train for planned in with_snapshots] == [(), (), (0, 1, 2)]
