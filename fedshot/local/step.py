"""One client's training as steps on tensors that keep their place: a step can be captured once and replayed."""

from dataclasses import replace

import torch
from torch import Tensor

from fedshot.local.conflict import comparable, gradient_cosines
from fedshot.local.counterparts import counterparts
from fedshot.local.forward import encode, inputs_of
from fedshot.local.half import HalfWeights
from fedshot.local.objective import Objective, Step
from fedshot.local.optimise import clip_gradients, make_optimiser, parameter_groups, set_rates
from fedshot.local.sampling import balanced_order
from fedshot.local.telemetry import EpochLog
from fedshot.local.views import draw
from fedshot.method import Client, Views
from fedshot.models import Classifier
from fedshot.models.copies import frozen_copy
from fedshot.models.turned import turn_at_random
from fedshot.seeds import stream, stream_seed
from fedshot.spec import Spec


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
        self.order = torch.zeros_like(self.labels)
        self.place = torch.zeros((), dtype=torch.int64, device=device)  # in the order of this epoch
        self.done = torch.zeros((), dtype=torch.float64, device=device)  # steps
        self.total = torch.ones_like(self.done)
        self.progress = torch.zeros((), device=device)
        self.draws = torch.Generator(device)  # of augmentation
        self._still: Classifier | None = None
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

    def shuffle(self) -> None:
        """A fresh order of the images, each once or every class equally often, from its first."""
        samples = len(self.client.train)
        if self.views.balanced:
            order = balanced_order(self.client.train.labels.cpu(), self.shuffles)
        else:
            order = torch.randperm(samples, generator=self.shuffles)
        if self.order.device.type == "cuda":
            order = order.pin_memory()  # so that the copy waits for no step
        self.order[:samples].copy_(order, non_blocking=True)
        self.place.zero_()

    @torch.no_grad()
    def still(self) -> Classifier:
        """The model as it is now, frozen and apart from training; it is overwritten when it is asked for again."""
        if self._still is None:
            self._still = frozen_copy(self.client.model)
        else:
            torch._foreach_copy_(_tensors_of(self._still), _tensors_of(self.client.model))
        return self._still

    def step(self, size: int, compared: bool = False) -> None:
        """One step on the next `size` images; `compared` also takes down how far its terms pull the same way."""
        self.progress.copy_(self.done / self.total)
        set_rates(self.groups, self.progress, self.spec)
        weighting = self.objective.weighting
        seen = self._forward(size)
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

    def _forward(self, size: int) -> Step:
        """One pass of all views of the next images through the model, as the terms of an objective read it."""
        client, views = self.client, self.views
        batch = self.order[self.place + torch.arange(size, device=self.order.device)]
        images, labels = self.images[batch], self.labels[batch]
        if views.turned:
            images, labels = turn_at_random(images, labels, self.draws)
        draws = draw(views.augmented * size, client.augmentation, self.draws)
        inputs = inputs_of(images, draws, client.augmentation, views.plain, client.task, self.fused)
        features = encode(client.model.encoder, inputs, self.spec.precision or "fp32", self.fused, self.half)
        targets = None if self.targets is None else self.targets[batch]
        return Step.of(client.model, features, labels, views.augmented, self.progress, targets)

    @torch.no_grad()
    def adopt(self, client: Client, objective: Objective, views: Views, spec: Spec) -> bool:
        """Becomes another client's training at its start, in the tensors of this one, so that captured steps serve it.

        False, with nothing changed, where the two differ in more than the content of tensors, or there is no room.
        """
        samples, weighting = len(client.train), objective.weighting.to(self.labels.device)
        client.model.train()
        pairs = counterparts(
            _what_steps_read(self.client, self.objective, self.views, self.spec),
            _what_steps_read(client, replace(objective, weighting=weighting), views, spec),
        )
        if pairs is None or samples > len(self.labels) or self.targets is not None or client.train.targets is not None:
            return False
        pairs += [(self.images[:samples], client.train.images), (self.labels[:samples], client.train.labels)]
        torch._foreach_copy_([ours for ours, _ in pairs], [theirs for _, theirs in pairs])
        if memory := [tensor for state in self.optimiser.state.values() for tensor in state.values()]:
            torch._foreach_zero_(memory)
        self.client, self.spec = replace(client, model=self.client.model), spec
        self._begin()
        return True


def _tensors_of(model: Classifier) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]


def _what_steps_read(client: Client, objective: Objective, views: Views, spec: Spec) -> tuple[object, ...]:
    """All that a client's steps depend on but its images, its numbers of steps and its random streams."""
    settings = spec.model_copy(update={"seed": 0, "evaluate_at": ()}).model_dump_json()
    task = replace(client.task, seed=0, public=None)
    return client.model, objective, views, settings, client.augmentation, task


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
