"""The only training loop: one client, alone, from the shared initial model to the end of its local run."""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from functools import partial

import torch
from torch import Tensor

from fedshot.kernels import available
from fedshot.local.capture import Capture, CaptureRefused
from fedshot.local.checkpoint import Checkpoint
from fedshot.local.objective import Objective
from fedshot.local.step import Training
from fedshot.local.telemetry import Row
from fedshot.method import Client, Views
from fedshot.models import Classifier
from fedshot.spec import Spec

AtEpoch = Callable[[int, Classifier | None, Row], None]  # with the model at evaluation points

_STEPS_AHEAD = 64  # that a device may be given before it has told how an earlier epoch ended


class TrainingDiverged(ArithmeticError):
    """The loss or the state of a client's model is not finite any more. `row` is the telemetry of that epoch."""

    def __init__(self, row: Row) -> None:
        super().__init__(f"training diverged in epoch {row['epoch']}: the loss or the model is not finite")
        self.row = row


class Bench:
    """Where clients are trained one after the other: keeps what the next one can use again.

    On a GPU that is the captured steps, and the tensors that they work on.
    """

    def __init__(self, captured: bool = True, fused: bool = True) -> None:
        self.captured, self.fused = captured, fused
        self.refusal: str | None = None  # why the current client's steps cannot be captured
        self._training: Training | None = None
        self._capture: Capture | None = None

    def take(self, client: Client, objective: Objective, views: Views, spec: Spec) -> Training:
        """A client's training at its start."""
        kept, self.refusal = self._training, None
        if kept is not None and self._capture is not None and kept.adopt(client, objective, views, spec):
            return kept
        on_gpu = client.train.labels.device.type == "cuda"
        made = Training(client, objective, views, spec, fused=on_gpu and self.fused and available())
        self._training, self._capture = made, Capture(made.draws) if on_gpu and self.captured else None
        return made

    def do(self, key: Hashable, training: Training, work: Callable[[], None]) -> None:
        """Runs work of the current client: captured, or as it is where it cannot be."""
        if self._capture is None:
            work()
            return
        # trying out algorithms pays for the batches that come again and again, not for the last of an epoch
        torch.backends.cudnn.benchmark = key in [(training.client.batch_size, compared) for compared in (False, True)]
        try:
            self._capture(key, work)
        except CaptureRefused as reason:
            self.refusal, self._capture = str(reason), None
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
    evaluation. Between two points a GPU may be some steps further when the telemetry arrives: no model then.
    An epoch that ends with numbers that are not finite raises `TrainingDiverged` instead.
    """
    training = bench.take(client, objective, views, spec)
    points, arriving = {*spec.evaluate_at, spec.epochs}, deque[tuple[int, Arrival]]()
    done = checkpoint.restore(training) if checkpoint else 0
    for epoch in range(done + 1, spec.epochs + 1):
        training.shuffle()
        for number, size in enumerate(training.sizes):
            compared = number == 0 and training.comparable  # dear on the CPU, so once an epoch, on a whole batch
            bench.do((size, compared), training, partial(training.step, size, compared))
            yield True
        bench.do("epoch", training, training.log.close)
        arriving.append((epoch, Arrival(training.log.closed)))
        due = checkpoint is not None and checkpoint.due
        while arriving:
            if not arriving[0][1].ready():
                if epoch not in points and not due and len(arriving) * len(training.sizes) < _STEPS_AHEAD:
                    break
                yield False
                continue
            ended, arrival = arriving.popleft()
            row = training.log.row(arrival.tensor, client.id, ended, len(training.sizes))
            if row["base_loss"] is None:
                raise TrainingDiverged(row)
            if checkpoint:
                checkpoint.rows.append(row)
            at_epoch(ended, training.still() if ended in points else None, row)
        if checkpoint and due and epoch < spec.epochs:
            checkpoint.write(training, epoch)


class Arrival:
    """A copy of a tensor on its way to the host."""

    def __init__(self, tensor: Tensor) -> None:
        on_gpu = tensor.device.type == "cuda"
        self.tensor = torch.empty_like(tensor, device="cpu", pin_memory=on_gpu)
        self.tensor.copy_(tensor, non_blocking=True)
        self._event = torch.cuda.Event() if on_gpu else None
        if self._event:
            self._event.record()

    def ready(self) -> bool:
        """Whether it is there."""
        return self._event is None or self._event.query()
