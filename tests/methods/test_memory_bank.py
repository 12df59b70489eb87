"""FAFI with a memory of past features, as first tried and as it should be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedshot.errors import UserError
from fedshot.local.counterparts import counterparts, tensors_in
from fedshot.local.train import Bench
from fedshot.local.work import client_work, one_thread
from fedshot.method import Client
from fedshot.prepare import prepare
from fedshot.spec import Spec
from fedshot.store import RunFolder

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]

FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "as first tried": ("memory_bank", {"size": 25}),
    "sound": ("memory_bank_sound", {"size": 25}),
    "attracting": ("memory_bank_sound", {"size": 25, "same_class": "attract"}),
    "smaller than a batch": ("memory_bank_sound", {"size": 5}),
}


def test_every_form_trains_something_else(quick: Quick, finished: FinishedRun) -> None:
    runs = [finished(quick(*form)) for form in FORMS.values()]
    assert len({tuple(found.uploads) for found in runs}) == len(FORMS)
    assert all(0 <= found.record.final.accuracy <= 1 for found in runs)


def test_a_client_of_two_classes_fills_the_memory_with_its_own(quick: Quick, finished: FinishedRun) -> None:
    names = ("memory_bank", "memory_bank_sound")
    first_tried, sound = (finished(quick(name, {"size": 10})).rows(2) for name in names)
    assert 0.4 < first_tried[1]["own_class_share"] < 0.6  # of the "negatives" are false
    assert first_tried[0]["own_class_share"] == 0  # its only step of the first epoch met random vectors
    assert sound[0]["own_class_share"] == 0 and 0.4 < sound[1]["own_class_share"] < 0.6
    assert first_tried[0]["loss_contrast"] > sound[0]["loss_contrast"]  # against nothing


def test_the_first_step_of_an_empty_memory_is_that_of_fafi(quick: Quick, finished: FinishedRun) -> None:
    sound, fafi = finished(quick("memory_bank_sound")).rows(2)[0], finished(quick("fafi")).rows(2)[0]
    assert sound["loss_contrast"] == pytest.approx(fafi["loss_contrast"], rel=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_an_interrupted_client_finds_its_memory_again(form: str, quick: Quick, tmp_path: Path) -> None:
    spec, uploads = quick(*FORMS[form], epochs=4, evaluate_at=(4,)), []
    for name, stop in (("whole", 0), ("stopped", 2)):
        folder, setting = RunFolder(tmp_path / name), prepare(spec)
        for until in [stop, 4] if stop else [4]:
            told = list[int]()
            with one_thread(setting.device):
                for _ in client_work(setting, 0, folder, told.append, Bench(), 0.0):
                    if until < 4 and until in told:
                        break
        assert told[0] == 1 + stop
        uploads.append((folder.upload(0).read_bytes(), (folder.client(0) / "telemetry.jsonl").read_bytes()))
    assert uploads[0] == uploads[1]


def test_memories_of_two_clients_are_counterparts(quick: Quick) -> None:
    setting = prepare(quick("memory_bank", {"size": 25}))
    clients = [setting.client(number) for number in (0, 1)]
    objectives = [setting.method.objective(client) for client in clients if isinstance(client, Client)]
    pairs, held = counterparts(*objectives), tensors_in(objectives[0])
    assert pairs is not None and held is not None and len(pairs) == len(held)
    shapes = [tuple(ours.shape) for ours, _ in pairs]
    assert (25, 512) in shapes and (25,) in shapes  # features and classes
    memory = next((ours, theirs) for ours, theirs in pairs if ours.ndim == 2)
    assert not torch.equal(*memory)  # random vectors of each client's own


@pytest.mark.parametrize("size", [-1, 2**20 + 1, "many"])
@pytest.mark.parametrize("method", ["memory_bank", "memory_bank_sound"])
def test_a_bad_size_stops_before_training(method: str, size: Any, quick: Quick) -> None:
    with pytest.raises(UserError, match="size takes a whole number of at least 0 and of at most 1048576"):
        prepare(quick(method, {"size": size}))


def test_the_sound_form_does_not_repel(quick: Quick) -> None:
    with pytest.raises(UserError, match=r"same_class takes ignore \| attract"):
        prepare(quick("memory_bank_sound", {"same_class": "repel"}))
