"""What is checked before anybody is asked: the plan of a run, and the folder that it goes to."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fedshot.errors import UserError
from fedshot.experiment import run
from fedshot.federation.conduct import begin, conduct
from fedshot.federation.plan import Plan, plan_file, read_plan, write_plan
from fedshot.spec import Spec, make_spec

PLAN = Plan(nodes={2**63 + 1: 0, 7: 1, 9: 2}, deadline_seconds=60.0)


def test_a_plan_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_plan(tmp_path, PLAN)
    assert read_plan(tmp_path) == PLAN and PLAN.numbers == [0, 1, 2]


@pytest.mark.parametrize(
    "changes", [{"nodes": {1: 0, 2: 0}}, {"deadline_seconds": 0}, {"retries": -1}, {"screen": "yes"}, {"hurry": True}]
)
def test_a_plan_that_cannot_be(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Plan.model_validate({**PLAN.model_dump(), **changes})


def test_a_folder_without_a_plan_or_with_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a run over a network: it has no federation\.json"):
        read_plan(tmp_path)
    plan_file(tmp_path).write_text('{"nodes": {"x": 0}}')
    with pytest.raises(UserError, match=r"federation\.json cannot be used: nodes"):
        read_plan(tmp_path)


@pytest.mark.parametrize(
    ("nodes", "min_clients", "reason"),
    [
        ({1: 0, 2: 3}, 1, "client 3 takes part, and the run has clients 0 to 2"),
        ({1: 0, 2: 1}, 3, "at least 3 clients are asked for, and 2 take part"),
    ],
)
def test_who_takes_part_is_checked(
    nodes: dict[int, int], min_clients: int, reason: str, one_epoch: Spec, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=reason):
        begin(one_epoch, tmp_path / "run", Plan(nodes=nodes, min_clients=min_clients))
    assert not (tmp_path / "run").exists()


def test_a_client_that_does_not_take_part_is_named_in_the_record(trained: Any) -> None:
    record = trained.conduct(nodes={100: 0, 102: 2})
    assert record.clients[1].skipped == "does not take part" and trained.transport.asked == [0, 2]


@pytest.mark.parametrize("resume", [False, True])
def test_the_folder_of_a_run_in_one_process_is_left_alone(resume: bool, one_epoch: Spec, tmp_path: Path) -> None:
    run(one_epoch, tmp_path / "run")
    record = (tmp_path / "run" / "record.json").read_bytes()
    with pytest.raises(UserError, match="holds a run in one process: choose another --out"):
        begin(one_epoch, tmp_path / "run", PLAN, resume)
    assert (tmp_path / "run" / "record.json").read_bytes() == record


def test_a_folder_of_another_spec_is_refused(one_epoch: Spec, tmp_path: Path) -> None:
    begin(one_epoch, tmp_path / "run", PLAN)
    with pytest.raises(UserError, match="holds a run of another spec"):
        begin(one_epoch.model_copy(update={"lr": 0.1}), tmp_path / "run", PLAN, resume=True)


def test_paths_of_a_spec_start_where_the_run_was_begun(
    trained: Any, one_epoch: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's app is started by the engine, in a folder of its own."""
    file = Path(one_epoch.partition_file or "")
    monkeypatch.chdir(file.parent)
    trained.spec = one_epoch.model_copy(update={"partition_file": file.name})
    begin(trained.spec, trained.run.path, trained.plan())
    monkeypatch.chdir(tmp_path)
    assert trained.go_on().spec.partition_file == file.name
    assert Path.cwd() == tmp_path


def test_a_server_without_a_plan_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run over a network"):
        conduct(tmp_path, None)  # type: ignore[arg-type]


def test_fewer_samples_than_clients_need_is_told_at_once(tmp_path: Path, divided: Any) -> None:
    spec = make_spec(method="fafi", clients=3, partition_file=divided((1, (0,)), (1, (1,)), (0, ())), epochs=1)
    with pytest.raises(UserError, match="none of the 3 clients holds two samples"):
        begin(spec, tmp_path / "run", PLAN)
