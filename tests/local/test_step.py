"""A training that becomes another client's, in its own tensors."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedshot.local import step
from fedshot.local.capture import Capture, Result
from fedshot.local.counterparts import counterparts
from fedshot.local.objective import Objective
from fedshot.local.statistics import encode
from fedshot.local.step import Training
from fedshot.local.train import Bench
from fedshot.method import Client, Views
from fedshot.methods import METHODS
from fedshot.prepare import prepare
from fedshot.setting import Setting
from fedshot.spec import Spec

Quick = Callable[..., Spec]


def client_of(setting: Setting, number: int) -> Client:
    made = setting.method.broadcast
    client = setting.client(number, {} if made is None else made(setting.opening()))
    assert isinstance(client, Client)
    return client


def begun(setting: Setting, number: int) -> Training:
    client = client_of(setting, number)
    return Training(client, setting.method.objective(client), setting.method.views, setting.spec)


def advanced(training: Training) -> list[Tensor]:
    """The model after two epochs, and the telemetry of the second."""
    for _ in range(2):
        training.shuffle()
        for size in training.sizes:
            training.step(size, compared=training.comparable and size == training.sizes[0])
        training.log.close()
    return [t.clone() for t in (*training.client.model.state_dict().values(), training.log.closed)]


def adopts(training: Training, setting: Setting, number: int, client: Client | None = None) -> bool:
    client = client or client_of(setting, number)
    return training.adopt(client, setting.method.objective(client), setting.method.views, setting.spec)


@pytest.mark.parametrize("method", METHODS)
def test_a_training_that_was_another_s_is_as_if_new(method: str, quick: Quick) -> None:
    first, setting = prepare(quick(method)), prepare(quick(method, seed=2))
    other = 1 if method == "split_local" else 2  # clients with another split have other steps
    training = begun(first, 0)
    advanced(training)
    assert adopts(training, setting, other)
    alone = advanced(begun(setting, other))
    # what does not exist in a method is NaN in both
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(advanced(training), alone, strict=True))


def test_adam_forgets_the_client_before(quick: Quick) -> None:
    setting = prepare(quick("fafi", optimizer="adamw", lr=1e-3))
    training = begun(setting, 0)
    advanced(training)
    assert adopts(training, setting, 1)
    alone = advanced(begun(setting, 1))
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(advanced(training), alone, strict=True))


def test_nothing_is_copied_where_the_steps_would_differ(quick: Quick) -> None:
    setting = prepare(quick("etf"))
    training = begun(setting, 1)
    before = [t.clone() for t in training.client.model.state_dict().values()]
    others: list[Setting] = [
        prepare(quick("fafi")),
        prepare(quick("etf", lr=0.1)),
        prepare(quick("etf", {"anneal": "cosine"})),
        prepare(quick("etf", precision="bf16")),
    ]
    assert not any(adopts(training, other, 2) for other in others)
    assert not adopts(training, setting, 0)  # 40 images do not fit where 33 were
    grown = client_of(setting, 2)
    grown = replace(grown, task=replace(grown.task, augmentation="natural"))
    assert not adopts(training, setting, 2, grown)
    assert all(torch.equal(a, b) for a, b in zip(before, training.client.model.state_dict().values(), strict=True))


COUNTING = """
from dataclasses import replace

from fedshot.local.objective import Objective, Term
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import FAFI_TERMS


def counting() -> Method:
    def objective(client: Client) -> Objective:
        share = len(client.train)
        return Objective(base=(*FAFI_TERMS, Term("count", lambda step: step.logits.mean() / share)))

    return replace(fafi(), name="counting", objective=objective)
"""


def test_a_number_of_the_client_s_own_in_a_closure_is_noticed(quick: Quick, tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(COUNTING)
    setting: Any = prepare(quick(str(tmp_path / "counting.py")))
    assert not adopts(begun(setting, 0), setting, 1)
    assert adopts(begun(setting, 0), setting, 0)


def test_a_still_model_is_apart_from_training(quick: Quick) -> None:
    training = begun(prepare(quick("fafi")), 0)
    training.shuffle()
    still = training.still()
    assert still is not training.client.model and not still.training
    assert not any(parameter.requires_grad for parameter in still.parameters())
    before = {name: t.clone() for name, t in still.state_dict().items()}
    training.step(16)
    assert all(torch.equal(t, before[name]) for name, t in still.state_dict().items())
    assert training.still() is still  # overwritten, so that no memory is asked for again
    now = training.client.model.state_dict()
    assert all(torch.equal(t, now[name]) for name, t in still.state_dict().items())
    assert not torch.equal(still.state_dict()["head.prototypes"], before["head.prototypes"])


class AtOnce(Capture):
    """Captures nothing, and keeps the keys of the work that would be."""

    def __init__(self, keys: list[object]) -> None:
        self.keys = keys

    def __call__(self, key: Hashable, work: Callable[[], Result]) -> Result:
        self.keys.append(key)
        return work()


class Taking(Bench):
    """Hands a training over to the next client on a CPU as well, where nothing is captured."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[object] = []  # of the work that would be captured

    def take(self, client: Client, objective: Objective, views: Views, spec: Spec) -> Training:
        taken = super().take(client, objective, views, spec)
        self._capture = AtOnce(self.keys)
        return taken

    def next(self, setting: Setting, number: int) -> tuple[Client, Training]:
        client = setting.client(number, copy=self.copy)
        assert isinstance(client, Client)
        return client, self.take(client, setting.method.objective(client), setting.method.views, setting.spec)


def test_a_model_that_is_handed_on_is_the_initial_one_whatever_was_done_to_it(quick: Quick) -> None:
    setting, bench = prepare(quick("fafi")), Taking()
    bench.next(setting, 0)
    client, _ = bench.next(setting, 1)
    with torch.no_grad():
        client.model.head.get_parameter("prototypes").zero_()
    handed_on, _ = bench.next(setting, 2)
    assert handed_on.model is client.model
    fresh = setting.initial_model.state_dict()
    assert all(torch.equal(t, fresh[name]) for name, t in handed_on.model.state_dict().items())


def test_a_model_that_no_training_used_serves_the_next_client(quick: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    setting, bench, walks = prepare(quick("etf_entropy")), Taking(), []

    def counted(ours: Any, theirs: Any, met: Any) -> Any:
        walks.append(type(ours).__name__)
        return counterparts(ours, theirs, met)

    monkeypatch.setattr(step, "counterparts", counted)
    models = []
    for number in (0, 1, 2, 1):
        client, training = bench.next(setting, number)
        models.append(client.model)
        alone = advanced(begun(setting, number))
        assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(advanced(training), alone, strict=True))
    assert models[1] is models[2] is models[3] is not models[0]
    assert walks == ["Classifier", "Objective", "Objective", "Objective"]  # the model is compared once
    fresh = setting.initial_model.state_dict()
    assert all(torch.equal(t, fresh[name]) for name, t in models[3].state_dict().items())


def test_a_model_in_use_is_never_handed_out_again(quick: Quick) -> None:
    setting, bench = prepare(quick("fafi")), Taking()
    first, training = bench.next(setting, 1)
    second, other = bench.next(setting, 0)  # 40 images do not fit where 33 were
    assert training is not other and other.client.model is second.model
    third, taken = bench.next(setting, 2)
    assert taken is other and third.model not in (first.model, second.model)
    elsewhere, _ = bench.next(prepare(quick("fafi", seed=2)), 2)
    assert elsewhere.model is not third.model  # another run has another initial model


def test_a_closure_is_looked_into_though_its_model_is_known(quick: Quick, tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(COUNTING)
    setting, bench = prepare(quick(str(tmp_path / "counting.py"))), Taking()
    _, training = bench.next(setting, 0)
    assert bench.next(setting, 0)[1] is training
    assert bench.next(setting, 1)[1] is not training


@pytest.mark.parametrize("method", ["fafi", "recommended"])
def test_features_of_images_are_those_that_the_model_gives_them(method: str, quick: Quick) -> None:
    setting, bench = prepare(quick(method)), Taking()
    for number in (2, 0, 1, 0):
        client, training = bench.next(setting, number)
        few = replace(client, train=client.train[torch.arange(7 + number)])
        for asked in (client, few):
            found = bench.features(asked, training.still())
            assert torch.allclose(found, encode(asked, training.still(), asked.train), atol=1e-5)
    assert len(bench.keys) == 8 and len(set(bench.keys)) < 4  # clients of many sizes share a pass
