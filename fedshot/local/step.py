"""One client's training as steps on tensors that keep their place: a step can be captured once and replayed."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedshot.local.conflict import comparable, gradient_cosines
from fedshot.local.counterparts import Met, Pair, counterparts
from fedshot.local.forward import encode, inputs_of
from fedshot.local.half import HalfWeights
from fedshot.local.objective import Objective, Step
from fedshot.local.optimise import clip_gradients, make_optimiser, parameter_groups, set_rates
from fedshot.local.sampling import balanced_order
from fedshot.local.telemetry import MOST_EPOCHS, EpochLog
from fedshot.local.views import draw
from fedshot.method import Client, Views
from fedshot.models import Classifier
from fedshot.models.copies import frozen_copy
from fedshot.models.turned import turn_at_random
from fedshot.seeds import stream, stream_seed
from fedshot.spec import Spec

_IMAGES_AHEAD = 1024  # that a GPU is told the order of at once, where an epoch has fewer


class Training:
    """What a client's steps read and write: data, model, optimiser, schedule, random streams, telemetry.

    Progress, learning rates and the place in the epoch are tensors on the device that a step moves on by itself, so
    that a step is the same sequence of kernels every time, whatever the host knows.
    """

    def __init__(self, client: Client, objective: Objective, views: Views, spec: Spec, fused: bool = False) -> None:
        device = client.train.labels.device
        self.client, self.views, self.spec, self.fused = client, views, spec, fused
        self.objective = replace(objective, weighting=objective.weighting.to(device))
        self.half = HalfWeights(client.model.encoder) if fused and spec.precision == "bf16" else None
        self.groups = parameter_groups(client.model, self.objective.weighting, spec, device)
        self.optimiser = make_optimiser(self.groups, spec)
        self.log = EpochLog(client.model, self.objective)
        self.comparable = comparable(objective)
        self.images, self.labels, self.targets = client.train.images, client.train.labels, client.train.targets
        room = max(len(self.labels), _IMAGES_AHEAD if device.type == "cuda" else 0)
        self.order = torch.zeros(room, dtype=torch.int64, device=device)  # of one epoch after the other
        self.place = torch.zeros((), dtype=torch.int64, device=device)  # in the order
        self.done = torch.zeros((), dtype=torch.float64, device=device)  # steps
        self.total = torch.ones_like(self.done)
        self.progress = torch.zeros((), device=device)
        self.draws = torch.Generator(device)  # of augmentation
        self._still: tuple[Classifier, list[Pair]] | None = None  # with the tensors that it is filled from
        self._matched: tuple[Classifier, Met, list[Pair]] | None = None  # a model that ours was compared with
        client.model.train()
        self._begin()

    def _begin(self) -> None:
        """Puts the schedule and the random streams at the start of this client's run."""
        seed, number = self.spec.seed, self.client.id
        self.sizes = batch_sizes(len(self.client.train), self.client.batch_size)
        self.total.fill_(self.spec.epochs * len(self.sizes))
        self.done.zero_()
        self.shuffles = stream(seed, "batches", number)
        self.draws.manual_seed(stream_seed(seed, "augmentation", number))

    def draw_anew(self, state: Tensor) -> None:
        """Goes on drawing from that state of the random stream, by another generator."""
        self.draws = torch.Generator(self.draws.device)
        self.draws.set_state(state)

    @property
    def epochs_ahead(self) -> int:
        """For how many epochs there is room in the order and in the log."""
        return min(MOST_EPOCHS, len(self.order) // len(self.client.train))

    def shuffle(self, epochs: int = 1) -> None:
        """Fresh orders of the images for the next epochs, each image once or every class equally often."""
        orders = torch.cat([self._fresh_order() for _ in range(epochs)])
        if self.order.device.type == "cuda":
            orders = orders.pin_memory()  # so that the copy waits for no step
        self.order[: len(orders)].copy_(orders, non_blocking=True)
        self.place.zero_()
        self.log.begin()

    def _fresh_order(self) -> Tensor:
        if self.views.balanced:
            return balanced_order(self.client.train.labels.cpu(), self.shuffles)
        return torch.randperm(len(self.client.train), generator=self.shuffles)

    @torch.no_grad()
    def still(self) -> Classifier:
        """The model as it is now, frozen and apart from training; it is overwritten when it is asked for again."""
        if self._still is None:
            still = frozen_copy(self.client.model)
            self._still = still, pairs_of(still, self.client.model)
        else:
            overwrite(self._still[1])
        return self._still[0]

    def advance(self, size: int, compared: bool, last: bool) -> None:
        """One step; the last of an epoch closes its log."""
        self.step(size, compared)
        if last:
            self.log.close()

    def step(self, size: int, compared: bool = False) -> None:
        """One step on the next `size` images; `compared` also takes down how far its terms pull the same way."""
        self.progress.copy_(self.done / self.total)
        set_rates(self.groups, self.progress, self.spec)
        weighting = self.objective.weighting
        seen = self.forward(size)
        base, align, terms = self.objective.losses(seen)
        loss = weighting(base, align, self.progress)
        with torch.no_grad():
            report = weighting.report(base, align, self.progress)
            told = {term.name: term.value(seen) for term in self.objective.reports}
        if compared:
            self.log.compare(gradient_cosines(self.objective, seen, base, align, terms))
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        if self.half is not None:
            self.half.widen_gradients()
        norm, factor = clip_gradients(self.groups, self.spec)
        self.log.add(base, align, terms, report, norm, factor, told)
        self.optimiser.step()
        self.place += size
        self.done += 1

    def forward(self, size: int) -> Step:
        """One pass of all views of the next images through the model, as the terms of an objective read it."""
        client, views = self.client, self.views
        batch = self.order[self.place + torch.arange(size, device=self.order.device)]
        images, labels = self.images[batch], self.labels[batch]
        if views.turned:
            images, labels = turn_at_random(images, labels, client.model.get_buffer("shares"), self.draws)
        inputs = inputs_of(images, self.drawn(size), views.plain, client.task, self.fused)
        features = encode(client.model.encoder, inputs, self.spec.precision or "fp32", self.fused, self.half)
        targets = None if self.targets is None else self.targets[batch]
        return Step.of(client.model, features, labels, views.augmented, self.progress, targets)

    def drawn(self, size: int) -> Tensor:
        """What the views of the next images are made of: draws of each, or of each view of the whole batch."""
        recipe, views = self.client.task.augmentation, self.views.augmented
        if self.spec.draws == "sample":
            return draw(views * size, recipe, self.draws)
        return draw(views, recipe, self.draws)[:, :, None].expand(-1, -1, size).flatten(1)  # all of view 1 first

    @torch.no_grad()
    def forget_momentum(self) -> None:
        """Lets the optimiser begin anew; the schedule goes on."""
        if memory := [tensor for state in self.optimiser.state.values() for tensor in state.values()]:
            torch._foreach_zero_(memory)

    @torch.no_grad()
    def adopt(self, client: Client, objective: Objective, views: Views, spec: Spec) -> bool:
        """Becomes another client's training at its start, in the tensors of this one, so that captured steps serve it.

        False, with nothing changed, where the two differ in more than the content of tensors, or there is no room.
        """
        samples = len(client.train)
        if samples > len(self.labels) or self.targets is not None or client.train.targets is not None:
            return False
        if views != self.views or not self._alike(client, spec):
            return False
        objective.weighting.to(self.labels.device, non_blocking=True)
        if (pairs := self._counterparts(client.model, objective)) is None:
            return False
        pairs += [(self.images[:samples], client.train.images), (self.labels[:samples], client.train.labels)]
        overwrite(pairs)
        self.forget_momentum()
        self.client, self.spec = replace(client, model=self.client.model), spec
        self._begin()
        return True

    def _alike(self, client: Client, spec: Spec) -> bool:
        """Whether the steps of both follow the same settings, which within a run are the very same objects."""
        same = spec is self.spec and client.task is self.client.task
        return same or _settings(client, spec) == _settings(self.client, self.spec)

    def _counterparts(self, model: Classifier, objective: Objective) -> list[Pair] | None:
        """What becomes another model and objective; a model that was compared before is not walked through again."""
        if self._matched is None or self._matched[0] is not model:
            met: Met = {}
            found = counterparts(self.client.model, model.train(), met)
            if found is None:
                return None
            self._matched = model, met, found
        _, met, of_model = self._matched
        of_objective = counterparts(self.objective, objective, met.copy())
        return None if of_objective is None else of_model + of_objective


def _settings(client: Client, spec: Spec) -> tuple[object, ...]:
    """All that steps depend on but model, objective, images, their number and random streams."""
    text = spec.model_copy(update={"seed": 0, "evaluate_at": ()}).model_dump_json()
    return replace(client.task, seed=0, public=None), text


def pairs_of(ours: Classifier, theirs: Classifier) -> list[Pair]:
    """The tensors of a model, each with that of another of the same build."""
    return list(zip(*([*model.parameters(), *model.buffers()] for model in (ours, theirs)), strict=True))


@torch.no_grad()
def overwrite(pairs: Sequence[Pair]) -> None:
    """Copies each second tensor into its first; those of one type at once, as a device wants them for one launch."""
    for dtype in {ours.dtype for ours, _ in pairs}:
        ours, theirs = zip(*(pair for pair in pairs if pair[0].dtype == dtype), strict=True)
        torch._foreach_copy_(ours, theirs)


def batch_sizes(samples: int, batch_size: int) -> list[int]:
    """The sizes of an epoch's batches: the last may be smaller, but never a single one.

    BatchNorm cannot normalise one sample, so a single one left over joins the batch before it.

    >>> batch_sizes(9, 4)
    [4, 5]
    """
    full, rest = divmod(samples, batch_size)
    sizes = [batch_size] * full + [rest] * (rest > 0)
    if len(sizes) > 1 and rest == 1:
        sizes[-2:] = [batch_size + 1]
    return sizes
