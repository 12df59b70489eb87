"""A client that was interrupted inside its run goes on as if nothing had happened."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedshot.local.checkpoint import Checkpoint
from fedshot.local.objective import Objective
from fedshot.local.step import Training
from fedshot.local.train import Bench
from fedshot.local.work import client_work, one_thread
from fedshot.method import Client, Views
from fedshot.prepare import prepare
from fedshot.spec import Spec
from fedshot.store import RunFolder
from fedshot.upload import parse

Quick = Callable[..., Spec]


class FarAhead(Bench):
    """Launches three epochs together, as a GPU does where epochs are short."""

    room = 3

    def take(self, client: Client, objective: Objective, views: Views, spec: Spec) -> Training:
        training = super().take(client, objective, views, spec)
        training.order = torch.zeros((self.room + 1) * len(client.train) - 1, dtype=torch.int64)
        return training


class AsFarAsPossible(FarAhead):
    room = 100


def work(
    spec: Spec, folder: RunFolder, until: int | None = None, seconds: float = 0.0, bench: type[Bench] = Bench
) -> list[int]:
    """Trains client 0 to the end, or to the first step after an epoch; the epochs that it told of."""
    setting, told = prepare(spec), list[int]()
    with one_thread(setting.device):
        for _ in client_work(setting, 0, folder, told.append, bench(), seconds):
            if until is not None and until in told:
                break
    return told


def result(folder: RunFolder) -> tuple[str, list[dict[str, Any]]]:
    rows = (folder.client(0) / "telemetry.jsonl").read_text().splitlines()
    return parse(folder.upload(0).read_bytes()).sha256, [json.loads(row) for row in rows]


CASES: dict[str, dict[str, Any]] = {
    "sigmas": {"method": "aurora", "schedule": "cosine"},
    "adam": {"method": "fafi", "optimizer": "adamw", "lr": 1e-3},
    "a moving target": {"method": "sliding_anchors", "evaluate_at": (2, 5)},
    "no momentum": {"method": "dual_head", "momentum": 0.0},
}


@pytest.mark.parametrize("case", CASES)
def test_it_ends_as_if_it_had_never_stopped(case: str, quick: Quick, tmp_path: Path) -> None:
    spec = quick(epochs=5, **{"evaluate_at": (5,), **CASES[case]})
    whole, stopped = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "stopped")
    assert work(spec, whole) == [1, 2, 3, 4, 5]
    work(spec, stopped, until=2)
    work(spec, stopped, until=4)
    assert not stopped.upload(0).exists() and stopped.checkpoint(0).exists()
    assert work(spec, stopped) == [5]
    assert result(stopped) == result(whole)
    assert not stopped.checkpoint(0).exists()


@pytest.mark.parametrize("case", [*CASES, "balanced"])
def test_epochs_that_are_launched_together_change_nothing(case: str, quick: Quick, tmp_path: Path) -> None:
    spec = quick(epochs=8, **{"evaluate_at": (5,), **CASES.get(case, {"method": "balanced_contrast"})})
    whole, together, stopped = (RunFolder(tmp_path / name) for name in ("whole", "together", "stopped"))
    assert work(spec, whole) == work(spec, together, bench=FarAhead) == [*range(1, 9)]
    assert result(together) == result(whole)
    first = min(3, *spec.evaluate_at)  # no stretch goes past an evaluation point
    assert work(spec, stopped, until=first, bench=FarAhead) == [*range(1, first + 1)]
    assert stopped.checkpoint(0).exists()
    work(spec, stopped, bench=FarAhead)
    assert result(stopped) == result(whole)


def test_no_more_epochs_are_launched_together_than_the_log_holds(quick: Quick, tmp_path: Path) -> None:
    spec = quick("fafi", epochs=20, evaluate_at=(20,))
    whole, together = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "together")
    assert work(spec, whole) == work(spec, together, bench=AsFarAsPossible) == [*range(1, 21)]
    assert result(together) == result(whole)


def test_quick_clients_write_nothing_in_between(quick: Quick, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    work(quick("fafi", epochs=4), folder, until=3, seconds=60.0)
    assert not folder.checkpoint(0).exists()


@pytest.mark.parametrize("content", [b"", b"nonsense" * 9, None])
def test_a_checkpoint_that_is_damaged_or_another_s_is_as_good_as_none(
    content: bytes | None, quick: Quick, tmp_path: Path
) -> None:
    folder, spec = RunFolder(tmp_path / "run"), quick("fafi", epochs=3)
    if content is None:
        work(quick("fafi", epochs=3, encoder="resnet18"), folder, until=2)
    else:
        folder.checkpoint(0).parent.mkdir(parents=True)
        folder.checkpoint(0).write_bytes(content)
    assert work(spec, folder) == [1, 2, 3]
    whole = RunFolder(tmp_path / "whole")
    work(spec, whole)
    assert result(folder) == result(whole)


HIDING = """
from dataclasses import replace

from fedshot.local.objective import Objective, Term
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import FAFI_TERMS


def hiding() -> Method:
    def objective(client: Client) -> Objective:
        count = iter(range(10**6))
        return Objective(base=(*FAFI_TERMS, Term("count", lambda step: step.logits.mean() * next(count))))

    return replace(fafi(), name="hiding", objective=objective)
"""


def test_an_objective_that_hides_its_state_begins_again(quick: Quick, tmp_path: Path) -> None:
    (tmp_path / "hiding.py").write_text(HIDING)
    folder, spec = RunFolder(tmp_path / "run"), quick(str(tmp_path / "hiding.py"), epochs=3)
    work(spec, folder, until=2)
    assert not folder.checkpoint(0).exists()
    assert work(spec, folder) == [1, 2, 3]


def test_what_captured_steps_read_stays_in_its_place(quick: Quick, tmp_path: Path) -> None:
    spec, folder = quick("fafi", epochs=3), RunFolder(tmp_path)
    work(spec, folder, until=2)
    setting = prepare(spec)
    client = setting.client(0)
    assert isinstance(client, Client)
    training = Training(client, setting.method.objective(client), setting.method.views, setting.spec)
    training.shuffle()
    training.step(training.sizes[0])
    before = [t for state in training.optimiser.state.values() for t in state.values()]
    assert Checkpoint(folder.checkpoint(0), 60.0).restore(training) > 0
    after = [t for state in training.optimiser.state.values() for t in state.values()]
    assert before and all(one is other for one, other in zip(before, after, strict=True))
