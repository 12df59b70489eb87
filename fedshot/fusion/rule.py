"""The contract of a fusion rule: uploads in, a predictor out, nothing flows back."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from fedshot.data.dataset import Labelled
from fedshot.fusion.memory import OnDemand
from fedshot.fusion.outputs import Outputs, outputs_of
from fedshot.models import Classifier
from fedshot.task import Task
from fedshot.upload import Upload

Combine = Callable[[Outputs], Tensor]  # what K models say about N images to class scores (N, C)
Study = Callable[[Iterable[Outputs]], Combine]


@dataclass(frozen=True, eq=False)
class Member:
    """A client as the server sees it: what it uploaded, and its model. Light: both are read when they are asked for."""

    upload: Upload
    load: Callable[[], Classifier]

    @property
    def model(self) -> Classifier:
        """Its model, frozen in evaluation mode. Beyond the server's budget of memory it is loaded at each call."""
        return self.load()


def models_of(members: Sequence[Member]) -> Sequence[Classifier]:
    """The members' models, each loaded when it is asked for."""
    return OnDemand(tuple(member.load for member in members))


@dataclass(frozen=True)
class Predictor:
    """Maps images to class scores (N, C) whose softmax over classes is the predicted distribution.

    A predictor with a `study` is transductive: tables never mix it with the others silently. It reads what the models
    say about all test images, one part after the other, and returns the function that scores a part; `combine` then
    scores images by their own statistics. `personal` are the models that the clients end up with, one each; None means
    those that they trained. `teacher` is the predictor that it was taught to imitate, where there is one; `lesson` are
    some of the images that taught it, with the teacher's answers. `look` is a fixed module that sees the prepared
    images beside the models: `Outputs.seen`.
    """

    models: Sequence[Classifier]
    combine: Combine
    study: Study | None = None
    personal: Sequence[Classifier] | None = None
    teacher: "Predictor | None" = None
    lesson: Labelled | None = None
    look: nn.Module | None = None

    @property
    def inductive(self) -> bool:
        return self.study is None

    def __call__(self, images: Tensor) -> Tensor:
        """Prepared images (N, channels, H, W) to scores (N, C)."""
        return self.combine(outputs_of(self.models, images, self.look))


def transductive(models: Sequence[Classifier], study: Study) -> Predictor:
    """A predictor that reads statistics of the test images."""
    return Predictor(models, lambda outputs: study([outputs])(outputs), study)


Fuse = Callable[[Sequence[Member], Task], Predictor]


@dataclass(frozen=True)
class Fusion:
    """A rule: a pure function of what was uploaded.

    `needs` names the sections of an upload that it reads; `held_out` asks for clients that hold back validation images,
    `public` for public images (`task.public`). `trains`: it trains a model, which takes as long as clients do.
    `check` raises a UserError for a model that the rule cannot fuse, before any client trains it.
    """

    name: str
    fuse: Fuse
    needs: tuple[str, ...] = ("weights",)
    inductive: bool = True
    held_out: bool = False
    public: bool = False
    trains: bool = False
    check: Callable[[Classifier], object] = lambda model: None
