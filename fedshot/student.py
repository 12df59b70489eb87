"""One model against the ensemble that taught it: what is kept, how well the lesson was learned, what time is saved."""

import time

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedshot.data.dataset import Labelled
from fedshot.evaluate import score
from fedshot.fusion.rule import Predictor
from fedshot.task import Task

_TIMED = 200  # test images that both are timed on
_REPEATS = 3
_COMPARED = 2000  # test images on which both are asked for their answer


class Student(BaseModel):
    """A student and its teacher on the test images. Seconds are measured one after the other on the same machine."""

    model_config = ConfigDict(frozen=True)

    accuracy: float
    teacher_accuracy: float
    accuracy_kept: float | None  # accuracy / teacher_accuracy; None for a teacher that is never right
    agreement: float | None = None  # share of test images that both answer alike; None in older records
    agreement_taught: float | None = None  # the same of the images that taught it
    models: int
    teacher_models: int
    seconds: float  # for 1,000 images
    teacher_seconds: float

    @property
    def speed(self) -> float:
        """How many times as fast as its teacher it answers."""
        return self.teacher_seconds / self.seconds

    def in_words(self, images: str = "test") -> str:
        """One sentence.

        Args:
            images: which ones both were asked about.
        """
        kept = "–" if self.accuracy_kept is None else f"{100 * self.accuracy_kept:.0f} %"
        taught = "one model" if self.teacher_models == 1 else f"{self.teacher_models} models"
        said = f"one model keeps {kept} of the accuracy of {taught}, at {self.speed:.1f} times their speed"
        if self.agreement is None or self.agreement_taught is None:
            return said
        return (
            f"{said}; it answers as they do on {100 * self.agreement_taught:.0f} % of what it was taught and on "
            f"{100 * self.agreement:.0f} % of the {images} images"
        )


def student_of(
    predictor: Predictor, accuracy: float, teacher_accuracy: float | None, test: Labelled, task: Task
) -> Student | None:
    """What a predictor keeps of its teacher; None for one that has none.

    Args:
        accuracy: on the test images, as the teacher's.
        test: some of its images are answered by both, and some against the clock.
    """
    if predictor.teacher is None or teacher_accuracy is None:
        return None
    agreement, agreement_taught = _agreements(predictor, predictor.teacher, test, task)
    return Student(
        accuracy=accuracy,
        teacher_accuracy=teacher_accuracy,
        accuracy_kept=accuracy / teacher_accuracy if teacher_accuracy else None,
        agreement=agreement,
        agreement_taught=agreement_taught,
        models=len(predictor.models),
        teacher_models=len(predictor.teacher.models),
        seconds=seconds_for_a_thousand(predictor, test.images, task),
        teacher_seconds=seconds_for_a_thousand(predictor.teacher, test.images, task),
    )


@torch.no_grad()
def _agreements(predictor: Predictor, teacher: Predictor, test: Labelled, task: Task) -> tuple[float, float | None]:
    """Shares of test images, and of those that taught it, on which a student answers as its teacher does."""
    said = score({"student": predictor, "teacher": teacher}, test.some(_COMPARED), task)
    tested = _alike(said["student"], said["teacher"].argmax(1))
    if predictor.lesson is None:
        return tested, None
    return tested, _alike(score({"student": predictor}, predictor.lesson, task)["student"], predictor.lesson.labels)


def _alike(scores: Tensor, answers: Tensor) -> float:
    return float((scores.argmax(1) == answers).double().mean())


def seconds_for_a_thousand(predictor: Predictor, images: Tensor, task: Task) -> float:
    """How long a predictor takes for 1,000 images: the shortest of a few times, after one that warms up.

    Models that do not fit in memory are loaded within that time, as they are in use.
    """
    timed = task.prepare(images[:_TIMED])
    taken = [_seconds(predictor, timed) for _ in range(1 + _REPEATS)]
    return 1000 * min(taken[1:]) / len(timed)


def _seconds(predictor: Predictor, images: Tensor) -> float:
    _wait(images)
    begin = time.perf_counter()
    predictor(images)
    _wait(images)
    return time.perf_counter() - begin


def _wait(images: Tensor) -> None:
    if images.device.type == "cuda":
        torch.cuda.synchronize(images.device)
