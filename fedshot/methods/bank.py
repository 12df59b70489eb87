"""A fixed bank of unit features of public images: made once by the server, sent with the job, contrasted against."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedshot.errors import UserError
from fedshot.local import losses
from fedshot.local.at_server import ServerTraining, trained_at_server
from fedshot.local.objective import Objective, Step, Term
from fedshot.local.statistics import chunks
from fedshot.local.train import TrainingDiverged
from fedshot.method import Client, Method, Opening, Views
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CLASSIFICATION, CONTRAST, FAFI_TERMS, PLAIN_CLASSIFICATION
from fedshot.models import LinearHead, build, unit
from fedshot.seeds import stream, stream_seed
from fedshot.spec import Positive
from fedshot.task import Public, Task

_MOST = 4096  # entries, unless more are asked for

SameClass = Literal["repel", "ignore", "attract"]


@dataclass(frozen=True)
class PublicBank:
    """How the bank is made, and what it does to a client's contrast.

    `size`: how many public images, all up to 4096 if not given. `same_class`: whether entries of an anchor's own class
    are negatives, left out, or positives. `augmented`: whether the teacher sees augmented views. `strength`: of the
    bank against the plain contrast, 0 for none.
    """

    same_class: SameClass
    augmented: bool
    size: Positive | None = None
    strength: Annotated[float, Field(ge=0, le=1)] = 1.0

    def check(self, task: Task) -> None:
        """Refuses public images of which this bank cannot be made."""
        public = _public(task)
        if self.size is not None and self.size > len(public.data):
            raise UserError(
                f"a bank of {self.size} features needs as many public images, and there are {len(public.data)}: "
                f"give --set size={len(public.data)} or less, or a larger --public share"
            )
        if self.same_class == "attract" and not public.same_labels:
            raise UserError(
                "same_class=attract needs public images with the labels of the task: give a share such as --public "
                "0.1, or --set same_class=ignore"
            )

    def make(self, opening: Opening, teaching: ServerTraining) -> dict[str, Tensor]:
        """Unit features (M, d) of public images by a teacher that was trained on all of them, and their labels (M,)."""
        task, public = opening.task, _public(opening.task)
        device = public.data.labels.device
        seed = stream_seed(task.seed, "teacher") % 2**31  # the teacher draws weights of its own
        school = replace(task, classes=public.classes, seed=seed, public=None)
        terms, views = ((CLASSIFICATION,), Views(1)) if self.augmented else ((PLAIN_CLASSIFICATION,), Views(0, True))
        blank = build(school, LinearHead).to(device)
        try:
            teacher = trained_at_server(blank, public.data, school, Objective(terms), views, teaching, "a teacher")
        except TrainingDiverged as end:
            raise UserError(f"the teacher's {end}: lower teacher.rate from {teaching.rate:g}") from None
        drawn = torch.randperm(len(public.data), generator=stream(task.seed, "bank"))[: self.size or _MOST]
        chosen = public.data[drawn.to(device)]
        labels = chosen.labels if public.same_labels else torch.full_like(chosen.labels, -1)
        features = torch.cat([teacher.features(task.prepare(part.images)) for part in chunks(chosen)])
        return {"bank": unit(features), "bank_labels": labels}

    def term(self, client: Client) -> Term:
        """SupCon whose denominators also run over the bank."""
        if not self.strength:
            return CONTRAST
        bank, labels = client.job["bank"], client.job["bank_labels"]

        def contrast(step: Step) -> Tensor:
            against = losses.bank_contrast(step.unit, step.labels, bank, labels, same_class=self.same_class)
            return against if self.strength == 1 else torch.lerp(CONTRAST.value(step), against, self.strength)

        return Term("contrast", contrast)


@dataclass(frozen=True)
class Stages:
    """Epochs of the bank's contrast alone, before the full loss.

    `first` epochs at the start of every `round` epochs; without a `round`, at the start of the run and never again. The
    last epoch always has the full loss.
    """

    first: Annotated[int, Field(ge=0)] = 0
    round: Positive | None = None

    def __post_init__(self) -> None:
        if self.round is not None and self.first >= self.round:
            raise UserError(
                f"stages.first={self.first} leaves no epoch of a round of {self.round} for the full loss: give at most "
                f"--set stages.first={self.round - 1}"
            )

    def alone(self, progress: Tensor, epochs: int) -> Tensor:
        """1 in the epochs of the first stage, 0 in the others; a 0-dim tensor.

        >>> stages = Stages(first=1, round=5)
        >>> [int(stages.alone(torch.tensor(epoch / 11), epochs=11)) for epoch in range(11)]
        [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
        """
        epoch = (progress * epochs + 1e-4).floor()  # the last digit of the progress may lie below the epoch's start
        return ((epoch.remainder(self.round or epochs) < self.first) & (epoch < epochs - 1)).to(progress.dtype)


def against_bank(name: str, bank: PublicBank, teaching: ServerTraining, stages: Stages = Stages()) -> Method:
    """FAFI whose contrast runs over the public bank too, perhaps with epochs of that contrast alone."""

    def objective(client: Client) -> Objective:
        contrast, epochs = bank.term(client), client.epochs
        terms = tuple(contrast if term is CONTRAST else term for term in FAFI_TERMS)
        if not stages.first:
            return Objective(terms)

        def alone(step: Step) -> Tensor:
            return stages.alone(step.progress, epochs)

        def in_second(term: Term) -> Term:
            return Term(term.name, lambda step: (1 - alone(step)) * term.value(step))

        staged = tuple(term if term is contrast else in_second(term) for term in terms)
        return Objective(staged, reports=(Term("stage_one", alone),))

    def broadcast(opening: Opening) -> dict[str, Tensor]:
        return bank.make(opening, teaching)

    return replace(fafi(), name=name, objective=objective, broadcast=broadcast, public=True, check=bank.check)


def _public(task: Task) -> Public:
    if task.public is None:
        raise UserError("the bank needs public images: give --public 0.1, or a data set of the same shape")
    return task.public
