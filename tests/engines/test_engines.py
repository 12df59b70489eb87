"""Clients in lanes and in worker processes: the same results, and what is kept when something breaks."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedshot.engines import lanes
from fedshot.engines.here import train_jobs
from fedshot.engines.job import Job, Place, Watch, WorkerLost
from fedshot.engines.lanes import Crew, Lane
from fedshot.engines.workers import _work
from fedshot.errors import UserError
from fedshot.experiment import Execution, run, run_all
from fedshot.prepare import prepare
from fedshot.record import Record
from fedshot.spec import Spec
from fedshot.store import ClientSummary

Quick = Callable[..., Spec]
CPU = Place("cpu")


def jobs_of(spec: Spec, folder: Path) -> list[Job]:
    setting = prepare(spec)
    return [Job(setting.spec, k, setting.partition.sizes[k], folder, None) for k in range(spec.clients)]


VARIANT = """
import os
from dataclasses import replace

import torch

from fedshot.local.objective import Objective, Term
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import FAFI_TERMS


def variant() -> Method:
    def objective(client: Client) -> Objective:
        def late(step):
            if client.id == 1 and step.progress >= 0.5:
                {act}
            return step.logits.mean()

        return Objective(base=(*FAFI_TERMS, Term("late", late)))

    return replace(fafi(), name="variant", objective=objective)
"""


def breaking(tmp_path: Path, act: str) -> str:
    """A method whose client 1 does something in the middle of its run."""
    file = tmp_path / "variant.py"
    file.write_text(VARIANT.format(act=act))
    return str(file)


def test_the_largest_client_of_a_run_comes_first_and_runs_keep_their_order(quick: Quick, tmp_path: Path) -> None:
    jobs = [*jobs_of(quick("fafi", epochs=1), tmp_path / "a"), *jobs_of(quick("etf", epochs=1), tmp_path / "b")]
    ended = [job for job, outcome in train_jobs(jobs[::-1], [CPU], lambda *_: None) if outcome]
    assert [(job.folder.name, job.client) for job in ended] == [(run, k) for run in "ba" for k in (0, 1, 2)]


@pytest.mark.parametrize("devices", ["cpu", "cpu,cpu", "cpu,cpu,cpu"])
def test_a_run_does_not_depend_on_how_many_devices_share_it(devices: str, quick: Quick, tmp_path: Path) -> None:
    spec = quick("aurora")
    alone = run(spec, tmp_path / "alone")
    shared = run(spec, tmp_path / "shared", Execution(device=devices))
    assert shared.result_sha256 == alone.result_sha256
    lines = [(tmp_path / name / "telemetry.jsonl").read_text() for name in ("alone", "shared")]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("lanes", [2, 5])
def test_a_run_does_not_depend_on_how_many_clients_take_turns(lanes: int, quick: Quick, tmp_path: Path) -> None:
    spec, order = quick("aurora", epochs=3), list[tuple[int, int]]()

    class Noting(Watch):
        def epoch(self, job: Job, epoch: int) -> None:
            order.append((job.client, epoch))

    alone = run(spec, tmp_path / "alone", Execution(lanes=1))
    turns = run(spec, tmp_path / "turns", Execution(lanes=lanes), Noting())
    assert turns.result_sha256 == alone.result_sha256
    assert order != sorted(order)  # they did take turns


def test_epochs_are_told_from_worker_processes(quick: Quick, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    list(train_jobs(jobs_of(quick("fafi"), tmp_path), [CPU, CPU], lambda job, epoch: told.append((job.client, epoch))))
    assert sorted(told) == [(k, e) for k in range(3) for e in (1, 2)]


@pytest.mark.parametrize("places", [[CPU], [CPU, CPU]])
def test_a_fault_in_one_client_is_its_own(places: list[Place], quick: Quick, tmp_path: Path) -> None:
    spec = quick(breaking(tmp_path, "raise ZeroDivisionError('in the objective')"))
    ended = {job.client: o for job, o in train_jobs(jobs_of(spec, tmp_path / "run"), places, lambda *_: None)}
    assert isinstance(ended[0], ClientSummary) and isinstance(ended[2], ClientSummary)
    assert isinstance(ended[1], ZeroDivisionError) and str(ended[1]) == "in the objective"


def test_an_error_from_a_worker_brings_its_traceback(quick: Quick, tmp_path: Path) -> None:
    spec = quick(breaking(tmp_path, "raise ZeroDivisionError('in the objective')"))
    (error,) = [
        o
        for _, o in train_jobs(jobs_of(spec, tmp_path / "run"), [CPU, CPU], lambda *_: None)
        if isinstance(o, Exception)
    ]
    assert any("variant.py" in note and "in late" in note for note in error.__notes__)


def test_an_error_that_cannot_travel_is_told_in_words(quick: Quick, tmp_path: Path) -> None:
    act = "raise type('Odd', (Exception,), {'__init__': lambda self, a, b: None})(1, 2)"
    ended = [
        o for _, o in train_jobs(jobs_of(quick(breaking(tmp_path, act)), tmp_path / "r"), [CPU, CPU], lambda *_: None)
    ]
    assert [str(o) for o in ended if isinstance(o, Exception)] == ["Odd: (1, 2)"]


def test_a_worker_that_dies_takes_its_own_run_alone_and_resume_goes_on(quick: Quick, tmp_path: Path) -> None:
    file = breaking(
        tmp_path,
        "os.kill(os.getpid(), 9) if not os.path.exists('MARK') else None".replace("MARK", str(tmp_path / "calm")),
    )
    requests = [(quick(file), tmp_path / "bad"), (quick("fafi"), tmp_path / "good")]
    bad, good = run_all(requests, Execution(workers=2))
    assert isinstance(bad, WorkerLost) and "exit status -9" in str(bad)
    assert isinstance(good, Record)
    (tmp_path / "calm").touch()
    began: list[int] = []

    class Counting(Watch):
        def planned(self, jobs: Any) -> None:
            began.extend(job.client for job in jobs)

    again = run(requests[0][0], tmp_path / "bad", Execution(workers=2, resume=True), Counting())
    assert began == [1]  # the others had finished
    assert again.result_sha256 == run(requests[0][0], tmp_path / "calmly").result_sha256


def test_a_client_that_runs_out_of_memory_alone_is_told_what_to_change(quick: Quick, tmp_path: Path) -> None:
    spec = quick(breaking(tmp_path, "raise torch.OutOfMemoryError('no room')"))
    with pytest.raises(UserError, match="client 1 does not fit the memory of cpu: choose a smaller --batch-size"):
        run(spec, tmp_path / "run")


def test_a_client_that_runs_out_of_memory_beside_others_is_tried_again_later(quick: Quick, tmp_path: Path) -> None:
    jobs = jobs_of(quick("fafi"), tmp_path)
    crew = Crew(iter([]), CPU, lambda *_: None)
    three = [Lane(CPU) for _ in range(3)]
    for lane, job in zip(three, jobs, strict=True):
        lane.job = job
        crew.busy.append(lane)
    assert crew.ended(three[1], torch.OutOfMemoryError("no room")) is None
    assert crew.limit == 2 and list(crew.again) == [jobs[1]]
    crew.ended(three[0], ClientSummary(id=0, samples=40))
    crew.ended(three[2], ClientSummary(id=2, samples=17))
    assert crew.staff() and [lane.job for lane in crew.busy] == [jobs[1]]


def test_a_lane_gets_its_next_client_before_the_others_go_on(
    quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []

    def work(setting: Any, number: int, *rest: Any) -> Generator[bool, None, ClientSummary]:
        for _ in range([1, 3, 2][number]):
            done.append(number)
            yield True
        return ClientSummary(id=number, samples=2)

    monkeypatch.setattr(lanes, "client_work", work)
    jobs = jobs_of(quick("fafi"), tmp_path)
    ended = [job.client for job, _ in lanes.train_in_lanes(iter(jobs), Place("cpu", lanes=2), lambda *_: None)]
    assert done == [0, 1, 2, 1, 1, 2] and ended == [0, 1, 2]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_device_that_disappears_ends_the_work_with_what_is_done(workers: int, quick: Quick, tmp_path: Path) -> None:
    spec = quick(breaking(tmp_path, "raise RuntimeError('CUDA error: unspecified launch failure\\nmore')"))
    with pytest.raises(WorkerLost, match=r"cpu stopped answering \(CUDA error: unspecified launch failure\); finished"):
        run(spec, tmp_path / "run", Execution(workers=workers))
    assert (tmp_path / "run" / "clients" / "0" / "client.json").exists()


def test_an_interrupt_leaves_no_worker_behind(quick: Quick, tmp_path: Path) -> None:
    started: list[int] = []

    class Interrupting(Watch):
        def epoch(self, job: Job, epoch: int) -> None:
            started.append(epoch)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(quick("fafi", epochs=40), tmp_path / "run", Execution(workers=2), Interrupting())
    assert started and multiprocessing.active_children() == []


def test_a_worker_whose_parent_is_gone_ends_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)  # it would leave interrupts to its parent
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    with pytest.raises(SystemExit):
        _work(theirs, CPU)
    assert capfd.readouterr() == ("", "")
