"""Finished runs for trackers: what they are given, once, and that a broken one breaks nothing."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fedshot.errors import UserError
from fedshot.spec import Spec
from fedshot.study.trackers import Scalar, Trackers, scalars_of


class Log:
    """Stands for all three packages, and notes what they are told."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        self.said.append(("end",))

    def __getattr__(self, name: str) -> Callable[..., "Log"]:
        def note(*given: Any, **named: Any) -> "Log":
            self.said.append((name, *given, *named.values()))
            return self

        return note

    def told(self, name: str) -> list[tuple[Any, ...]]:
        return [words[1:] for words in self.said if words[0] == name]


@pytest.fixture
def run(quick: Callable[..., Spec], finished: Callable) -> Any:
    return finished(quick("fafi"))


def install(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    module = ModuleType(name)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)


def test_scalars_are_those_of_the_files(run: Any) -> None:
    found = list(scalars_of(run.record, run.folder.path))
    assert [s.epoch for s in found] == sorted(s.epoch for s in found)
    assert Scalar("curve/accuracy", 1, run.record.curve[0].accuracy) in found
    assert Scalar("final/accuracy", 2, run.record.final.accuracy) in found
    assert Scalar("client_1/base_loss", 2, run.rows(1)[1]["base_loss"]) in found


def test_tensorboard(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, places = Log(), []
    install(monkeypatch, "torch.utils.tensorboard", SummaryWriter=lambda place: places.append(place) or log)
    Trackers(["tensorboard"], tmp_path).export(run.folder.path, run.record)
    assert places == [str(tmp_path / "tensorboard" / run.folder.path.name)]
    assert ("final/accuracy", run.record.final.accuracy, 2) in log.told("add_scalar")
    assert json.loads(log.told("add_text")[0][1])["method"] == "fafi"


def test_weights_and_biases(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    install(monkeypatch, "wandb", init=log.init)
    Trackers(["wandb"], tmp_path).export(run.folder.path, run.record)
    assert [step for _, step in log.told("log")] == [1, 2], "a step is logged once"
    assert log.told("log")[1][0]["final/accuracy"] == run.record.final.accuracy
    assert log.said[-1] == ("finish",)


def test_mlflow(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    monkeypatch.setitem(sys.modules, "mlflow", log)  # type: ignore[arg-type]
    Trackers(["mlflow"], tmp_path).export(run.folder.path, run.record)
    assert log.told("set_experiment") == [(tmp_path.name,)]
    assert ("final/accuracy", run.record.final.accuracy, 2) in log.told("log_metric")
    assert log.told("log_params")[0][0]["method"] == "fafi"


def test_a_run_is_exported_once(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    install(monkeypatch, "wandb", init=log.init)
    for _ in range(2):
        Trackers(["wandb", "wandb"], tmp_path).export(run.folder.path, run.record)
    assert len(log.told("init")) == 1


def test_a_tracker_that_fails_warns_once_and_is_tried_again_later(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: Any) -> None:
        raise ConnectionError("no network\nmore")

    install(monkeypatch, "wandb", init=refuse)
    trackers = Trackers(["wandb"], tmp_path)
    for _ in range(2):
        trackers.export(run.folder.path, run.record)
    said = capsys.readouterr().err
    assert said == "fedshot: warning: wandb failed (ConnectionError: no network); the runs are not affected\n"
    log = Log()
    install(monkeypatch, "wandb", init=log.init)
    Trackers(["wandb"], tmp_path).export(run.folder.path, run.record)
    assert log.told("init")


def test_what_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="unknown tracker 'wandbb': did you mean 'wandb'"):
        Trackers(["wandbb"], tmp_path)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UserError, match=r"pip install 'fedshot\[mlflow\]'"):
        Trackers(["mlflow"], tmp_path)


def test_telemetry_that_cannot_be_read_breaks_nothing(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(monkeypatch, "wandb", init=SimpleNamespace)
    Trackers(["wandb"], tmp_path).export(tmp_path / "nowhere", run.record)
    assert "wandb failed (FileNotFoundError" in capsys.readouterr().err
