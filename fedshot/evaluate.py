"""How good a predictor is on the test images, and why: metrics, each client alone, the bound of perfect routing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedshot.data.dataset import Labelled
from fedshot.fusion.interview import Interview
from fedshot.fusion.rule import Member, Predictor, models_of
from fedshot.task import Task


class Metrics(BaseModel):
    """Of one predictor on all test images. Shares lie in [0, 1]."""

    model_config = ConfigDict(frozen=True)

    accuracy: float
    balanced_accuracy: float
    worst_class_accuracy: float
    per_class_accuracy: tuple[float | None, ...]  # None for a class without test images
    nll: float
    calibration_error: float
    mean_confidence: float | None = None  # above the accuracy: over-confident; None in older records
    confusion: tuple[tuple[int, ...], ...]  # rows: the truth, columns: the prediction

    @property
    def images(self) -> int:
        """How many were tested."""
        return sum(map(sum, self.confusion))


@dataclass(frozen=True)
class Alone:
    """The members without any fusion."""

    accuracies: tuple[float, ...]  # of each member on the whole test set
    per_class: tuple[tuple[float | None, ...], ...]
    oracle_routing: float  # asking for each image the member that holds most of its class
    personalised: tuple[float | None, ...]  # of the model that each member ends up with, on classes as it holds them
    teacher_accuracy: float | None = None  # of the ensemble of members that the predictor was taught by

    @property
    def personalised_accuracy(self) -> float | None:
        """The mean over members; None if none of them holds a class that is tested."""
        known = [value for value in self.personalised if value is not None]
        return sum(known) / len(known) if known else None


def score(predictors: Mapping[str, Predictor], test: Labelled, task: Task) -> dict[str, Tensor]:
    """Scores (N, C) of each predictor. Models that predictors share are asked once for each image."""
    parts: dict[str, list[Tensor]] = {name: [] for name in predictors}
    for _, found in scored(predictors, test, task):
        for name, scores in found.items():
            parts[name].append(scores.float())
    return {name: torch.cat(chunks) for name, chunks in parts.items()}


def scored(
    predictors: Mapping[str, Predictor], test: Labelled, task: Task
) -> Iterator[tuple[slice, dict[str, Tensor]]]:
    """What each predictor makes of one part of the test images after the other."""
    interview = Interview({name: (p.models, p.look) for name, p in predictors.items()}, test.images, task)
    combine = {name: p.study(interview.with_one(name)) if p.study else p.combine for name, p in predictors.items()}
    for part, said in interview.with_all():
        found = {name: combine[name](outputs) for name, outputs in said.items()}
        del said  # before the next images are asked about
        yield part, found


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
    confidence = log_p.exp().amax(1)
    return Metrics(
        accuracy=int((predicted == labels).sum()) / len(labels),
        balanced_accuracy=sum(present) / len(present),
        worst_class_accuracy=min(present),
        per_class_accuracy=per_class,
        nll=-float(log_p.gather(1, labels[:, None]).mean()),
        calibration_error=calibration_error(confidence, predicted == labels),
        mean_confidence=float(confidence.mean()),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
    )


def class_accuracies(confusion: Tensor) -> tuple[float | None, ...]:
    """The share of each class that was recognised; None for a class without images.

    >>> class_accuracies(torch.tensor([[3, 1], [0, 0]]))
    (0.75, None)
    """
    return shares(confusion.diagonal(), confusion.sum(1))


def shares(right: Tensor, total: Tensor) -> tuple[float | None, ...]:
    """right / total, (C,) each; None where there is nothing to share."""
    return tuple(r / t if t else None for r, t in zip(right.tolist(), total.tolist(), strict=True))


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

    The bound tells how much is lost in deciding whom to believe. The model that a member ends up with is also scored on
    classes as often as the member holds them.
    """
    counts = torch.tensor([m.upload.header.class_counts for m in members], device=test.labels.device)  # (K, C)
    holder = counts.argmax(0)  # (C,)
    right, right_personal = torch.zeros(2, *counts.shape, dtype=torch.int64, device=test.labels.device)
    routed, scores = 0, []
    own = models_of(members)
    everyone = Predictor(own, lambda outputs: outputs.logits.argmax(2))  # (K, N)
    personal = replace(everyone, models=own if predictor.personal is None else predictor.personal)
    asked = {"fused": predictor, "alone": everyone, "personal": personal}
    if predictor.teacher is not None:
        asked["teacher"] = predictor.teacher
    taught = 0
    for part, found in scored(asked, test, task):
        labels = test.labels[part]
        hits = (found["alone"] == labels).long()
        right.index_add_(1, labels, hits)
        right_personal.index_add_(1, labels, (found["personal"] == labels).long())
        routed += int(hits.gather(0, holder[labels][None]).sum())
        scores.append(found["fused"].float())
        if predictor.teacher is not None:
            taught += int((found["teacher"].argmax(1) == labels).sum())
    total = torch.bincount(test.labels, minlength=task.classes)
    alone = Alone(
        accuracies=tuple(count / len(test) for count in right.sum(1).tolist()),
        per_class=tuple(shares(row, total) for row in right),
        oracle_routing=routed / len(test),
        personalised=tuple(
            personalised(shares(row, total), mine) for row, mine in zip(right_personal, counts.tolist(), strict=True)
        ),
        teacher_accuracy=None if predictor.teacher is None else taught / len(test),
    )
    return metrics(torch.cat(scores), test.labels, task.classes), alone


def personalised(per_class: Sequence[float | None], class_counts: Sequence[int]) -> float | None:
    """Accuracy on test images that come as often as a client's labels: sum_c p_k(c) accuracy_k(c).

    Classes without test images are left out of p_k; None if no other is left.

    >>> personalised((0.5, 1.0, None), (30, 10, 5))
    0.625
    """
    tested = [(n, share) for n, share in zip(class_counts, per_class, strict=True) if share is not None]
    total = sum(n for n, _ in tested)
    return sum(n * share for n, share in tested) / total if total else None
