"""The contract of a one-shot method, and what a method is given to work with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from fedshot.data.dataset import Labelled
from fedshot.fusion.rule import Fusion
from fedshot.local.objective import Objective
from fedshot.models import Classifier
from fedshot.sections import STATISTICS, Section
from fedshot.task import Task


@dataclass(frozen=True)
class Client:
    """One client before training: its data, and its own copy of the shared initial model."""

    id: int
    task: Task
    train: Labelled  # on the device
    validation: Labelled | None
    class_counts: tuple[int, ...]  # of the training part
    model: Classifier
    epochs: int
    batch_size: int
    augmentation: Literal["natural", "characters"]


@dataclass(frozen=True)
class Views:
    """How a client's images enter a step: augmented views, and perhaps the images as they are."""

    augmented: int = 2
    plain: bool = False


@dataclass(frozen=True)
class Method:
    """A one-shot method: what a client minimises, and what the server makes of the uploads.

    A client yields exactly one upload and hears nothing back. A method with a second exchange says so in `phases`.
    """

    name: str
    model: Callable[[Task], Classifier]
    objective: Callable[[Client], Objective]
    fusion: Fusion
    statistics: Mapping[str, Section] = field(default_factory=lambda: STATISTICS)  # sent beside weights
    views: Views = Views()
    phases: int = 1
