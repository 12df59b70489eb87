"""Cosines between the gradients of a step's terms: right, and without a trace in the training."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedshot.experiment import run
from fedshot.local.conflict import COSINES, comparable, gradient_cosines
from fedshot.local.objective import Objective, Step, Term
from fedshot.local.step import Training
from fedshot.methods.terms import CLASSIFICATION, CONTRAST, prototypes
from fedshot.models import PrototypeHead, build, unit
from fedshot.prepare import prepare
from fedshot.spec import Spec
from fedshot.task import Task

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]


@pytest.fixture
def step(task: Task) -> Step:
    """Eight images in one view; their features are leaves, as if an encoder had given them."""
    torch.manual_seed(0)
    model, labels = build(task, PrototypeHead), torch.arange(8) % 3
    features = torch.randn(8, model.encoder.width, requires_grad=True)
    logits, progress = model.head(features), torch.zeros(())
    return Step(model, features, unit(features), logits, labels, labels, 1, None, None, progress, features)


def cosines(objective: Objective, step: Step) -> dict[str, float]:
    found = gradient_cosines(objective, step, *objective.losses(step))
    return dict(zip(COSINES, [float(cosine) for cosine in found], strict=True))


def scaled(name: str, term: Term, factor: float) -> Term:
    return Term(name, lambda s: factor * term.value(s))


@pytest.mark.parametrize("factor", [3.0, -1e-4])
def test_a_multiple_of_a_loss_has_its_direction(factor: float, step: Step) -> None:
    found = cosines(Objective((CLASSIFICATION,), (scaled("align", CLASSIFICATION, factor),)), step)
    sign = 1 if factor > 0 else -1
    assert found["gradient_cosine_head"] == pytest.approx(sign, abs=1e-5)
    assert found["gradient_cosine_features"] == pytest.approx(sign, abs=1e-5)


def test_contrast_is_compared_with_the_rest_of_the_base_loss(step: Step) -> None:
    found = cosines(Objective((CLASSIFICATION, CONTRAST)), step)["gradient_cosine_contrast"]
    (rest,) = torch.autograd.grad(CLASSIFICATION.value(step), step.features, retain_graph=True)
    (contrast,) = torch.autograd.grad(CONTRAST.value(step), step.features)
    assert found == pytest.approx(float(torch.cosine_similarity(rest.flatten(), contrast.flatten(), 0)), abs=1e-5)


def test_a_place_that_one_loss_does_not_reach_has_no_cosine(step: Step) -> None:
    found = cosines(Objective((CLASSIFICATION,), (Term("align", lambda s: prototypes(s).square().mean()),)), step)
    assert abs(found["gradient_cosine_head"]) < 1
    assert found["gradient_cosine_features"] != found["gradient_cosine_features"]  # NaN
    found = cosines(Objective((CLASSIFICATION, CONTRAST)), replace(step, encoded=None))
    assert all(cosine != cosine for cosine in found.values())


def test_a_head_that_does_not_learn_has_no_cosine(step: Step) -> None:
    step.model.head.requires_grad_(False)
    step = replace(step, logits=step.model.head(step.features))
    found = cosines(Objective((CLASSIFICATION,), (scaled("align", CLASSIFICATION, 2.0),)), step)
    assert found["gradient_cosine_head"] != found["gradient_cosine_head"]
    assert found["gradient_cosine_features"] == pytest.approx(1, abs=1e-5)


def test_a_gradient_of_zero_has_the_cosine_zero(step: Step) -> None:
    found = cosines(Objective((CLASSIFICATION,), (scaled("align", CLASSIFICATION, 0.0),)), step)
    assert found["gradient_cosine_head"] == found["gradient_cosine_features"] == 0


def test_no_gradient_is_kept(step: Step) -> None:
    objective = Objective((CLASSIFICATION, CONTRAST), (scaled("align", CLASSIFICATION, 2.0),))
    cosines(objective, step)
    assert step.features.grad is None and all(p.grad is None for p in step.model.parameters())


def test_one_loss_has_nothing_to_be_compared_with() -> None:
    assert not comparable(Objective((CLASSIFICATION,)))
    assert comparable(Objective((CLASSIFICATION, CONTRAST)))
    assert comparable(Objective((CLASSIFICATION,), (CONTRAST,)))


@pytest.mark.parametrize("method", ["fafi", "aurora", "align_uniform", "dual_head", "raw_supcon"])
def test_training_is_the_same_with_and_without_them(method: str, quick: Quick) -> None:
    setting = prepare(quick(method))

    def trained(compared: bool) -> list[Tensor]:
        client = setting.client(0)
        assert not isinstance(client, str)
        training = Training(client, setting.method.objective(client), setting.method.views, setting.spec)
        for _ in range(2):
            training.shuffle()
            for size in training.sizes:
                training.step(size, compared)
        memory = [state["momentum_buffer"] for state in training.optimiser.state.values()]
        return [*client.model.state_dict().values(), *memory, training.draws.get_state()]

    assert all(torch.equal(a, b) for a, b in zip(trained(True), trained(False), strict=True))


def test_records_are_the_same_with_and_without_them(
    quick: Quick, finished: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_them = finished(quick("etf"))
    assert all(row["gradient_cosine_head"] is not None for row in with_them.rows(0))
    assert all(row["gradient_cosine_features"] is None for row in with_them.rows(0))  # anchors move prototypes alone
    monkeypatch.setattr("fedshot.local.step.comparable", lambda objective: False)
    without = run(quick("etf"))
    assert without.result_sha256 == with_them.record.result_sha256


def test_short_epochs_are_compared_now_and_then(quick: Quick, finished: FinishedRun) -> None:
    rows = finished(quick("etf", epochs=10, evaluate_at=())).rows(0)
    told = [row["epoch"] for row in rows if row["gradient_cosine_head"] is not None]
    assert told == [1, 3, 5, 7, 9, 10]  # at least five times, and no cosine stands twice
