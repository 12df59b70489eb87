"""The contract of a one-shot method, and what a method is given to work with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from fedshot.data.dataset import Labelled
from fedshot.local.objective import Objective
from fedshot.models import Classifier
from fedshot.sections import STATISTICS, Section
from fedshot.task import Task

if TYPE_CHECKING:  # a fusion rule may train a model, as a client does
    from fedshot.fusion.rule import Fusion


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
    job: Mapping[str, Tensor] = field(default_factory=dict)  # what the server sent with the job, on the device


@dataclass(frozen=True)
class Views:
    """How a client's images enter a step: augmented views, and perhaps the images as they are.

    `balanced`: every class that the client holds comes equally often, instead of every image once an epoch. `turned`:
    an image comes in one of its turns, drawn anew each time, and its label says which (`models.turned`).
    """

    augmented: int = 2
    plain: bool = False
    balanced: bool = False
    turned: bool = False


@dataclass(frozen=True)
class Opening:
    """What the server knows before any client trains."""

    task: Task
    model: Classifier  # the one that every client starts from
    class_counts: Tensor | None  # (K, C) as the clients announced them; None where they announce nothing


@dataclass(frozen=True)
class Method:
    """A one-shot method: what a client minimises, and what the server makes of the uploads.

    A client yields exactly one upload and hears nothing back. The `objective` may read a client's model, and leaves it
    as it is. In a method of two `phases` every client first announces how many images of each class it holds. What the
    server makes once and sends with the job is the `broadcast`; `public` says that it needs public images. `check`
    refuses a task for which the method cannot be, before anything is made. `settings` are fields of the spec that it
    fills in where none is given. Options named in `of_rule` are those of its own rule, under the same names, and
    read by nothing else: clients are the same whatever they are.
    """

    name: str
    model: Callable[[Task], Classifier]
    objective: Callable[[Client], Objective]
    fusion: "Fusion"
    statistics: Mapping[str, Section] = field(default_factory=lambda: STATISTICS)  # sent beside weights
    views: Views = Views()
    phases: Literal[1, 2] = 1
    broadcast: Callable[[Opening], Mapping[str, Tensor]] | None = None
    public: bool = False
    check: Callable[[Task], object] = lambda task: None
    settings: Mapping[str, object] = field(default_factory=dict)
    largest_batch: int | None = None  # where none is given
    of_rule: tuple[str, ...] = ()
