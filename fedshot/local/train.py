"""The only training loop: one client, alone, from the shared initial model to the end of its local run."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

import torch
from torch import Tensor

from fedshot.data.dataset import Labelled
from fedshot.kernels import available
from fedshot.local.arrival import Arrival
from fedshot.local.capture import Capture, CaptureRefused
from fedshot.local.checkpoint import Checkpoint
from fedshot.local.counterparts import Pair
from fedshot.local.objective import Objective
from fedshot.local.statistics import CHUNK, encode
from fedshot.local.step import Training, overwrite, pairs_of
from fedshot.local.telemetry import Row
from fedshot.method import Client, Views
from fedshot.models import Classifier
from fedshot.models.copies import copy_of
from fedshot.spec import Spec

Result = TypeVar("Result")
AtEpoch = Callable[[int, Classifier | None, Row], None]  # with the model at evaluation points

_COMPARED_EVERY = 16  # steps, in short epochs: comparing gradients may cost as much as a step of a small network
_COMPARED_TIMES = 5  # at least, in a run of that many epochs
_TOGETHER = 32  # images by which a captured pass grows
_ALIKE = 3  # clients of as many images that a lane has had, before their end is worth capturing
_STEPS_AHEAD = 64  # that a device may be given before it has told how an earlier epoch ended


def compares(epoch: int, steps: int, epochs: int) -> bool:
    """Whether gradients are compared in an epoch of so many steps: in the first, the last, and often enough between.

    >>> [epoch for epoch in range(1, 21) if compares(epoch, steps=5, epochs=20)]
    [1, 5, 9, 13, 17, 20]
    """
    apart = min(math.ceil(_COMPARED_EVERY / steps), max(1, epochs // _COMPARED_TIMES))
    return epoch == epochs or (epoch - 1) % apart == 0


class TrainingDiverged(ArithmeticError):
    """The loss or the state of a client's model is not finite any more. `row` is the telemetry of that epoch."""

    def __init__(self, row: Row) -> None:
        super().__init__(f"training diverged in epoch {row['epoch']}: the loss or the model is not finite")
        self.row = row


@dataclass(frozen=True)
class Copy:
    """A model that was made for a client, and what it is a copy of."""

    initial: Classifier
    model: Classifier

    @cached_property
    def pairs(self) -> list[Pair]:
        """The tensors of both."""
        return pairs_of(self.model, self.initial)


class Bench:
    """Where clients are trained one after the other: keeps what the next one can use again.

    On a GPU that is the captured steps, and the tensors that they work on.
    """

    def __init__(self, captured: bool = True, fused: bool = True) -> None:
        self.captured, self.fused = captured, fused
        self.refusal: str | None = None  # why the current client's steps cannot be captured
        self._training: Training | None = None
        self._capture: Capture | None = None
        self._copied: Copy | None = None  # for the current client
        self._spare: Copy | None = None  # which was only read, when another training was taken over
        self._features: dict[int, Tensor] = {}  # where those of so many images go
        self._ends: Capture | None = None

    def copy(self, initial: Classifier) -> Classifier:
        """A model of its own for the next client: a spare one with the content of the initial model, or a new one."""
        if self._spare is not None and self._spare.initial is initial:
            overwrite(self._spare.pairs)
            self._copied = self._spare
        else:
            self._copied = Copy(initial, copy_of(initial))
        return self._copied.model

    def take(self, client: Client, objective: Objective, views: Views, spec: Spec) -> Training:
        """A client's training at its start."""
        kept, self.refusal = self._training, None
        if kept is not None and self._capture is not None and kept.adopt(client, objective, views, spec):
            self._spare = self._copied if self._copied and self._copied.model is client.model else None
            return kept
        self._spare = None
        on_gpu = client.train.labels.device.type == "cuda"
        made = Training(client, objective, views, spec, fused=on_gpu and self.fused and available())
        self._training, self._capture = made, Capture(made.draws) if on_gpu and self.captured else None
        self._ends = Capture(after=_ALIKE) if self._capture else None
        return made

    def features(self, client: Client, model: Classifier) -> Tensor:
        """Raw features of the client's training images in float32, (N, d); they last until the next client's.

        Args:
            model: the `still` one of its training.
        """
        training, samples = self._training, len(client.train)
        if training is None or self._capture is None or samples > CHUNK:
            return encode(client, model, client.train)
        # some images of an earlier client may be among them, so that clients of many sizes share a captured pass
        rows = min(len(training.images), _TOGETHER * math.ceil(samples / _TOGETHER))
        if rows not in self._features:
            self._features[rows] = torch.empty(rows, model.width, device=training.images.device)
        seen, room = Labelled(training.images[:rows], training.labels[:rows]), self._features[rows]
        self.do(("features", rows), training, lambda: room.copy_(encode(client, model, seen)))
        return room[:samples]

    def end(self, client: Client, work: Callable[[Client], Result]) -> Result:
        """What work makes of a trained client, on the device: captured where clients of as many images come often.

        The work reads the client that it is handed, the `still` model and `features`, draws nothing and waits for
        nothing; tensors in its result last until the next client's.
        """
        training, samples = self._training, len(client.train)
        small = samples <= CHUNK and client.validation is None and client.train.targets is None
        if training is None or self._ends is None or not small:
            return work(client)
        own = replace(client, train=Labelled(training.images[:samples], training.labels[:samples]))
        try:
            return self._ends(samples, lambda: work(own))
        except CaptureRefused:
            self._ends = None
            return work(client)

    def do(self, key: tuple[int | str | bool, ...], training: Training, work: Callable[[], object]) -> None:
        """Runs work of the current client: captured, or as it is where it cannot be."""
        if self._capture is None:
            work()
            return
        # trying out algorithms pays for the batches that come again and again, not for the last of an epoch
        torch.backends.cudnn.benchmark = key[0] == training.client.batch_size
        try:
            self._capture(key, work)
        except CaptureRefused as reason:
            self.refusal, self._capture, self._ends = str(reason), None, None
            if reason.state is not None:
                training.draw_anew(reason.state)
            work()


def train(client: Client, objective: Objective, views: Views, spec: Spec, at_epoch: AtEpoch) -> None:
    """Trains `client.model` in place: all `steps` at once."""
    for _ in steps(client, objective, views, spec, at_epoch, Bench()):
        pass


def steps(
    client: Client,
    objective: Objective,
    views: Views,
    spec: Spec,
    at_epoch: AtEpoch,
    bench: Bench,
    checkpoint: Checkpoint | None = None,
) -> Iterator[bool]:
    """Trains `client.model` in place, one step at a time, so that others can train in between.

    Yields False where it only waits for the device. Momentum, schedules and random streams live as long as the client.
    `at_epoch(epoch, model, telemetry)` is called after each of the epochs 1 … E, in order. At an evaluation point it is
    handed a frozen copy of the model, for the time of the call, so that training is the same with and without
    evaluation. Between two points a GPU may be some epochs further when the telemetry arrives: no model then.
    An epoch that ends with numbers that are not finite raises `TrainingDiverged` instead.
    """
    training = bench.take(client, objective, views, spec)
    points, arriving = {*spec.evaluate_at, spec.epochs}, deque[tuple[range, Arrival]]()
    epoch = checkpoint.restore(training) if checkpoint else 0
    while epoch < spec.epochs:
        stretch = range(epoch + 1, 1 + min(epoch + training.epochs_ahead, *(each for each in points if each > epoch)))
        training.shuffle(len(stretch))
        for epoch in stretch:
            if spec.momentum_epochs and epoch > 1 and (epoch - 1) % spec.momentum_epochs == 0:
                training.forget_momentum()
            for size, compared, last in _kinds_of_steps(training, epoch):
                bench.do((size, compared, last), training, partial(training.advance, size, compared, last))
                yield True
        arriving.append((stretch, Arrival(training.log.closed)))
        due = checkpoint is not None and checkpoint.due
        while arriving:
            if not arriving[0][1].ready():
                ahead = (epoch - arriving[0][0].start + 1) * len(training.sizes)
                if epoch not in points and not due and ahead < _STEPS_AHEAD:
                    break
                yield False
                continue
            for ended, row in _rows_of(training, *arriving.popleft()):
                if checkpoint:
                    checkpoint.rows.append(row)
                at_epoch(ended, training.still() if ended in points else None, row)
        if checkpoint and due and epoch < spec.epochs:
            checkpoint.write(training, epoch)


def _kinds_of_steps(training: Training, epoch: int) -> Iterator[tuple[int, bool, bool]]:
    """The steps of an epoch: how many images, whether gradients are compared, whether it is the last."""
    sizes = training.sizes
    compared = training.comparable and compares(epoch, len(sizes), training.spec.epochs)
    for number, size in enumerate(sizes):
        yield size, compared and number == 0, number == len(sizes) - 1


def _rows_of(training: Training, epochs: range, arrival: Arrival) -> Iterator[tuple[int, Row]]:
    """The telemetry of epochs, once it is there."""
    for epoch, closed in zip(epochs, arrival.tensor.tolist(), strict=False):  # which has room for more
        row = training.log.row(closed, training.client.id, epoch, len(training.sizes))
        if row["base_loss"] is None:
            raise TrainingDiverged(row)
        yield epoch, row
