"""One model against the ensemble that taught it: how much accuracy is kept, and how much time is saved."""

import time

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedshot.fusion.rule import Predictor
from fedshot.task import Task

_TIMED = 200  # test images that both are timed on
_REPEATS = 3


class Student(BaseModel):
    """A student and its teacher on the test images. Seconds are measured one after the other on the same machine."""

    model_config = ConfigDict(frozen=True)

    accuracy: float
    teacher_accuracy: float
    accuracy_kept: float | None  # accuracy / teacher_accuracy; None for a teacher that is never right
    models: int
    teacher_models: int
    seconds: float  # for 1,000 images
    teacher_seconds: float

    @property
    def speed(self) -> float:
        """How many times as fast as its teacher it answers."""
        return self.teacher_seconds / self.seconds

    def in_words(self) -> str:
        kept = "–" if self.accuracy_kept is None else f"{100 * self.accuracy_kept:.0f} %"
        taught = "one model" if self.teacher_models == 1 else f"{self.teacher_models} models"
        return f"one model keeps {kept} of the accuracy of {taught}, at {self.speed:.1f} times their speed"


def student_of(
    predictor: Predictor, accuracy: float, teacher_accuracy: float | None, images: Tensor, task: Task
) -> Student | None:
    """What a predictor keeps of its teacher; None for one that has none.

    Args:
        accuracy: on the test images, as the teacher's.
        images: some of which are answered against the clock, (N, channels, H, W) uint8.
    """
    if predictor.teacher is None or teacher_accuracy is None:
        return None
    return Student(
        accuracy=accuracy,
        teacher_accuracy=teacher_accuracy,
        accuracy_kept=accuracy / teacher_accuracy if teacher_accuracy else None,
        models=len(predictor.models),
        teacher_models=len(predictor.teacher.models),
        seconds=seconds_for_a_thousand(predictor, images, task),
        teacher_seconds=seconds_for_a_thousand(predictor.teacher, images, task),
    )


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
