"""Every metric against a naive loop, and the flow from predictors to metrics."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedshot.data.dataset import Dataset, Labelled
from fedshot.departure import make_upload
from fedshot.evaluate import calibration_error, evaluate, evaluate_with_members, metrics, score
from fedshot.fusion import Member, Predictor, interview, make_fusion
from fedshot.models import Classifier, PrototypeHead, build
from fedshot.task import Task
from fedshot.upload import Header

CLASSES = 4


@pytest.fixture(scope="module")
def scores() -> Tensor:
    return torch.randn(200, CLASSES, generator=torch.Generator().manual_seed(0)) * 2


@pytest.fixture(scope="module")
def labels() -> Tensor:
    return torch.randint(0, CLASSES - 1, (200,), generator=torch.Generator().manual_seed(1))  # none of the last class


def test_metrics_against_a_naive_loop(scores: Tensor, labels: Tensor) -> None:
    found = metrics(scores, labels, CLASSES)
    confusion = [[0] * CLASSES for _ in range(CLASSES)]
    nll = 0.0
    for row, label in zip(scores.double().tolist(), labels.tolist(), strict=True):
        confusion[label][max(range(CLASSES), key=row.__getitem__)] += 1
        nll -= row[label] - math.log(sum(math.exp(value) for value in row))
    shares = [confusion[c][c] / sum(confusion[c]) for c in range(CLASSES - 1)]
    assert found.confusion == tuple(tuple(row) for row in confusion)
    assert found.accuracy == sum(confusion[c][c] for c in range(CLASSES)) / 200
    assert found.per_class_accuracy == (*shares, None)
    assert found.balanced_accuracy == pytest.approx(sum(shares) / 3, abs=1e-12)
    assert found.worst_class_accuracy == min(shares)
    assert found.nll == pytest.approx(nll / 200, rel=1e-9)
    assert found.accuracy != found.balanced_accuracy


def test_calibration_error_against_a_naive_loop(scores: Tensor, labels: Tensor) -> None:
    confidence, predicted = scores.double().softmax(1).max(1)
    right = predicted == labels
    total = 0.0
    for b in range(15):
        inside = [i for i in range(200) if b / 15 < confidence[i] <= (b + 1) / 15]
        if inside:
            accuracy = sum(bool(right[i]) for i in inside) / len(inside)
            mean = sum(float(confidence[i]) for i in inside) / len(inside)
            total += len(inside) / 200 * abs(accuracy - mean)
    assert calibration_error(confidence, right) == pytest.approx(total, abs=1e-10)
    assert metrics(scores, labels, CLASSES).calibration_error == pytest.approx(total, abs=1e-10)
    assert metrics(scores, labels, CLASSES).mean_confidence == pytest.approx(float(confidence.mean()), abs=1e-6)


@pytest.mark.parametrize(
    ("confidence", "right", "expected"),
    [
        ([1.0, 1.0], [True, True], 0.0),
        ([1.0, 1.0], [False, False], 1.0),
        ([0.0], [False], 0.0),  # belongs to the first bin
        ([0.0], [True], 1.0),
        ([0.5, 0.5], [True, False], 0.0),  # balanced within a bin
        ([0.1, 0.9], [True, False], 0.9),  # not balanced across bins
        ([1 / 15, 1 / 15 + 1e-6], [True, False], (14 / 15 + 1 / 15 + 1e-6) / 2),  # the edge belongs below
    ],
)
def test_calibration_error_at_the_edges(confidence: list[float], right: list[bool], expected: float) -> None:
    found = calibration_error(torch.tensor(confidence, dtype=torch.float64), torch.tensor(right))
    assert found == pytest.approx(expected, abs=1e-9)


def test_certain_and_wrong_stays_finite() -> None:
    found = metrics(torch.tensor([[1e4, 0.0], [0.0, 1e4]]), torch.tensor([1, 1]), 2)
    assert found.nll == pytest.approx(5e3)
    assert found.calibration_error == 0.5


def models(task: Task, count: int = 3) -> list[Classifier]:
    return [build(replace(task, seed=k), PrototypeHead).eval().requires_grad_(False) for k in range(count)]


def member(model: Classifier, counts: tuple[int, ...], client: int) -> Member:
    header = Header(client=client, samples=sum(counts), class_counts=counts, method="x")
    return Member(make_upload(header, {"weights": model.state_dict()}), lambda: model)


@pytest.fixture(scope="module")
def members(task: Task) -> list[Member]:
    """The first holds classes 0 to 3, the second most of 3 to 7, the third most of 0; nobody holds 8 and 9."""
    counts = [(5, 5, 5, 5, 0, 0, 0, 0, 0, 0), (0, 0, 0, 9, 9, 9, 9, 9, 0, 0), (7, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    return [member(model, row, k) for k, (model, row) in enumerate(zip(models(task), counts, strict=True))]


def test_oracle_routing_asks_the_holder_of_most_of_the_class(
    members: list[Member], digits: Dataset, task: Task
) -> None:
    fused = make_fusion("logits").fuse(members, task)
    found, alone = evaluate_with_members(fused, members, digits.test, task)
    assert found == evaluate({"logits": fused}, digits.test, task)["logits"]
    said = [m.model(task.prepare(digits.test.images)).argmax(1).tolist() for m in members]
    right, routed = [0] * 3, 0
    for i, label in enumerate(digits.test.labels.tolist()):
        held = [m.upload.header.class_counts[label] for m in members]
        routed += said[held.index(max(held))][i] == label
        for k in range(3):
            right[k] += said[k][i] == label
    assert alone.oracle_routing == routed / 360
    assert alone.accuracies == tuple(count / 360 for count in right)
    assert len(set(alone.accuracies)) > 1
    first = [i for i, label in enumerate(digits.test.labels.tolist()) if label == 4]
    assert alone.per_class[0][4] == sum(said[0][i] == 4 for i in first) / len(first)


def test_perfect_clients_are_routed_perfectly(digits: Dataset, task: Task) -> None:
    class Knows(torch.nn.Module):
        """Says the label of any image that was shown to it, if the label is one of its own."""

        width = 1

        def __init__(self, classes: set[int]) -> None:
            super().__init__()
            self.classes = classes

        def forward(self, images: Tensor) -> Tensor:
            keys = {key.numpy().tobytes(): int(label) for key, label in zip(shown, digits.test.labels, strict=True)}
            labels = [keys[image.numpy().tobytes()] for image in images]
            return torch.tensor([label if label in self.classes else min(self.classes) for label in labels]).float()[
                :, None
            ]

    class Says(torch.nn.Module):
        def forward(self, features: Tensor) -> Tensor:
            return torch.nn.functional.one_hot(features[:, 0].long(), 10).float()

    shown = task.prepare(digits.test.images)
    low, high = (Classifier(Knows(set(known)), Says()) for known in (range(5), range(5, 10)))  # type: ignore[arg-type]
    upload = member(models(task, 1)[0], (1,) * 10, 0).upload
    members = []
    for model, counts in ((low, (1,) * 5 + (0,) * 5), (high, (0,) * 5 + (1,) * 5)):
        header = upload.header.model_copy(update={"class_counts": counts, "samples": 5})
        members.append(Member(replace(upload, header=header), lambda model=model: model))  # type: ignore[misc]
    first = Predictor((members[0].model,), lambda out: out.logits[0])
    _, alone = evaluate_with_members(first, members, digits.test, task)
    assert alone.oracle_routing == 1.0
    assert all(0.4 < accuracy < 0.6 for accuracy in alone.accuracies)


def test_models_are_asked_once_for_each_image_however_many_predictors(
    members: list[Member], digits: Dataset, task: Task
) -> None:
    seen = [0] * 3

    def counting(k: int) -> Callable[..., None]:
        def count(*called: Any) -> None:
            seen[k] += len(called[2])

        return count

    hooks = [m.model.encoder.register_forward_hook(counting(k)) for k, m in enumerate(members)]
    rules = ["features", "logits", "probabilities", "class_weighted", "batch_moments"]
    evaluate({rule: make_fusion(rule).fuse(members, task) for rule in rules}, digits.test, task)
    for hook in hooks:
        hook.remove()
    assert seen == [360] * 3


@pytest.mark.parametrize("chunk", [1, 7, 120, 360, 1000])
def test_the_size_of_a_chunk_changes_nothing(
    chunk: int, members: list[Member], digits: Dataset, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Labelled(digits.test.images[:120], digits.test.labels[:120])
    rules = {rule: make_fusion(rule).fuse(members, task) for rule in ("features", "class_weighted", "batch_moments")}
    images = task.prepare(part.images)
    monkeypatch.setattr(interview, "_BATCH", chunk)
    found = score(rules, part, task)
    for name, predictor in rules.items():
        assert found[name].shape == (120, 10)
        torch.testing.assert_close(found[name], predictor(images), rtol=1e-3, atol=1e-3)


def test_each_predictor_has_the_metrics_of_its_own_scores(members: list[Member], digits: Dataset, task: Task) -> None:
    predictors = {str(k): Predictor((m.model,), lambda out: out.logits[0]) for k, m in enumerate(members)}
    found = evaluate(predictors, digits.test, task)
    for k, m in enumerate(members):
        assert found[str(k)] == metrics(m.model(task.prepare(digits.test.images)), digits.test.labels, 10)
