"""How good a predictor is on the test images, and why: metrics, each client alone, the bound of perfect routing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedshot.data.dataset import Labelled
from fedshot.fusion.rule import Member, Outputs, Predictor, outputs_of
from fedshot.task import Task

_CHUNK = 500  # test images encoded at once


class Metrics(BaseModel):
    """Of one predictor on all test images. Shares lie in [0, 1]."""

    model_config = ConfigDict(frozen=True)

    accuracy: float
    balanced_accuracy: float
    worst_class_accuracy: float
    per_class_accuracy: tuple[float | None, ...]  # None for a class without test images
    nll: float
    calibration_error: float
    confusion: tuple[tuple[int, ...], ...]  # rows: the truth, columns: the prediction


@dataclass(frozen=True)
class Alone:
    """The members without any fusion."""

    accuracies: tuple[float, ...]  # of each member on the whole test set
    per_class: tuple[tuple[float | None, ...], ...]
    oracle_routing: float  # asking for each image the member that holds most of its class


def score(predictors: Mapping[str, Predictor], test: Labelled, task: Task) -> dict[str, Tensor]:
    """Scores (N, C) of each predictor. Models that predictors share are asked once for each image."""
    parts: dict[str, list[Tensor]] = {name: [] for name in predictors}
    kept: dict[str, list[Outputs]] = {name: [] for name, p in predictors.items() if not p.inductive}
    for start in range(0, len(test), _CHUNK):
        images = task.prepare(test.images[start : start + _CHUNK])
        said: dict[tuple[int, ...], Outputs] = {}
        for name, predictor in predictors.items():
            key = tuple(id(model) for model in predictor.models)
            if key not in said:
                said[key] = outputs_of(predictor.models, images)
            if predictor.inductive:
                parts[name].append(predictor.combine(said[key]))
            else:
                kept[name].append(said[key])
    for name, chunks in kept.items():
        # statistics of the test images are those of all of them, whatever the size of a chunk
        whole = Outputs(torch.cat([c.features for c in chunks], 1), torch.cat([c.logits for c in chunks], 1))
        parts[name].append(predictors[name].combine(whole))
    return {name: torch.cat(chunks).float() for name, chunks in parts.items()}


@torch.no_grad()
def evaluate(predictors: Mapping[str, Predictor], test: Labelled, task: Task) -> dict[str, Metrics]:
    """Metrics of each predictor on the same test images."""
    return {name: metrics(scores, test.labels, task.classes) for name, scores in score(predictors, test, task).items()}


def metrics(scores: Tensor, labels: Tensor, classes: int) -> Metrics:
    """Metrics from scores (N, C), whose softmax is the predicted distribution, and labels (N,)."""
    predicted = scores.argmax(1)
    confusion = torch.bincount(labels * classes + predicted, minlength=classes * classes).view(classes, classes)
    per_class = class_accuracies(confusion)
    present = [value for value in per_class if value is not None]
    log_p = scores.double().log_softmax(1)
    return Metrics(
        accuracy=int((predicted == labels).sum()) / len(labels),
        balanced_accuracy=sum(present) / len(present),
        worst_class_accuracy=min(present),
        per_class_accuracy=per_class,
        nll=-float(log_p.gather(1, labels[:, None]).mean()),
        calibration_error=calibration_error(log_p.exp().amax(1), predicted == labels),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
    )


def class_accuracies(confusion: Tensor) -> tuple[float | None, ...]:
    """The share of each class that was recognised; None for a class without images.

    >>> class_accuracies(torch.tensor([[3, 1], [0, 0]]))
    (0.75, None)
    """
    right, total = confusion.diagonal().tolist(), confusion.sum(1).tolist()
    return tuple(r / t if t else None for r, t in zip(right, total, strict=True))


def calibration_error(confidence: Tensor, right: Tensor, bins: int = 15) -> float:
    """Expected calibration error, Guo et al. 2017 (arXiv:1706.04599): sum_b |b|/N |accuracy_b - confidence_b|.

    Args:
        confidence: the probability of each prediction, (N,), in bins of equal width.
        right: whether it was right, (N,).

    >>> calibration_error(torch.tensor([0.75, 0.75]), torch.tensor([True, False]))
    0.25
    """
    confidence = confidence.double()
    bin_of = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gap = torch.zeros(bins, dtype=torch.float64, device=confidence.device)
    gap.index_add_(0, bin_of, right.double() - confidence)
    return round(float(gap.abs().sum()) / len(confidence), 12)


@torch.no_grad()
def evaluate_with_members(
    predictor: Predictor, members: Sequence[Member], test: Labelled, task: Task
) -> tuple[Metrics, Alone]:
    """A predictor, each of its members on the whole test set, and the bound of perfect routing, in one pass.

    The bound tells how much is lost in deciding whom to believe.
    """
    models = tuple(m.model for m in members)
    everyone = Predictor(models, lambda out: out.logits.transpose(0, 1).flatten(1))  # (N, K*C)
    scores = score({"fused": predictor, "alone": everyone}, test, task)
    logits = scores["alone"].view(len(test), len(members), task.classes).transpose(0, 1)  # (K, N, C)
    right = logits.argmax(2) == test.labels  # (K, N)
    counts = torch.tensor([m.upload.header.class_counts for m in members], device=test.labels.device)
    holder = counts.argmax(0)[test.labels]  # (N,)
    found = [metrics(each, test.labels, task.classes) for each in logits]
    alone = Alone(
        accuracies=tuple(m.accuracy for m in found),
        per_class=tuple(m.per_class_accuracy for m in found),
        oracle_routing=int(right.gather(0, holder[None]).sum()) / len(test),
    )
    return metrics(scores["fused"], test.labels, task.classes), alone
