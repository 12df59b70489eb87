"""The package's own training, timed from outside: by the moments at which clients finish their epochs."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from fedshot.benchmarks.plain import Measured
from fedshot.engines.job import Job, Watch
from fedshot.experiment import Execution, run
from fedshot.record import Record
from fedshot.spec import Spec
from fedshot.store import RunFolder

UNCOUNTED_EPOCHS = 3  # a client's first two and its last
FEWEST_EPOCHS = UNCOUNTED_EPOCHS + 2


@dataclass(frozen=True)
class Stamp:
    """A client has finished an epoch."""

    client: int
    samples: int
    epoch: int
    at: float  # seconds


class Clock(Watch):
    """Notes when training begins and when each epoch ends."""

    def __init__(self) -> None:
        self.began = 0.0
        self.stamps: list[Stamp] = []

    def planned(self, jobs: Sequence[Job]) -> None:
        self.began = time.perf_counter()

    def epoch(self, job: Job, epoch: int) -> None:
        self.stamps.append(Stamp(job.client, job.samples, epoch, time.perf_counter()))


@dataclass(frozen=True)
class Timed:
    """A run that is over, and when its epochs ended."""

    record: Record
    began: float
    stamps: tuple[Stamp, ...]
    training_memory_bytes: int  # the largest peak of a client


def timed_run(spec: Spec, execution: Execution) -> Timed:
    """Runs a spec; its files are dropped."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as scratch:
        folder = RunFolder(Path(scratch) / "run")
        record = run(spec, folder.path, execution, clock)
        ended = [folder.finished(number) for number in range(spec.clients)]
    peak = max((summary.peak_memory_bytes for summary in ended if summary), default=0)
    return Timed(record, clock.began, tuple(clock.stamps), peak)


def measure_package(spec: Spec, execution: Execution, side_by_side: int) -> Measured:
    """The steady speed, and the start-up: the time to the end of the first epoch less that of a steady one."""
    timed = timed_run(spec, execution)
    first = min(timed.stamps, key=lambda stamp: stamp.at)
    epochs = steady_epochs(timed.stamps, side_by_side)
    seconds = sum(last.at - before.at for before, last in epochs)
    speed = side_by_side * sum(last.samples for _, last in epochs) / seconds
    clients = timed.record.clients
    mean_samples = sum(client.samples for client in clients) / len(clients)
    refusals = [f"not captured: {client.not_captured}" for client in clients if client.not_captured]
    return Measured(
        images_per_second=speed,
        seconds_per_client_epoch=mean_samples / speed,
        peak_memory_bytes=timed.record.cost.peak_memory_bytes,
        startup_seconds=max(0.0, first.at - timed.began - side_by_side * first.samples / speed),
        note="".join(refusals[:1]),
    )


def steady_epochs(stamps: Sequence[Stamp], side_by_side: int) -> list[tuple[Stamp, Stamp]]:
    """The epochs that count, each as its begin and its end.

    They lie between the moment when as many clients as train side by side have finished their second epoch, and the
    moment from which on fewer than that are left. A client's first two epochs hold its start-up, its last one the
    making of the upload: these do not count.
    """
    clients = {s.client for s in stamps}
    runs = [sorted((s for s in stamps if s.client == c), key=lambda s: s.epoch) for c in clients]
    if side_by_side > len(runs) or any(len(run) < FEWEST_EPOCHS for run in runs):
        raise ValueError(f"a steady speed needs {side_by_side} clients and {FEWEST_EPOCHS} epochs of each")
    begin = sorted(run[1].at for run in runs)[side_by_side - 1]
    end = sorted(run[-1].at for run in runs)[len(runs) - side_by_side]
    found = [pair for run in runs for pair in pairwise(run[1:-1]) if begin <= pair[0].at and pair[1].at <= end]
    if not found:
        raise ValueError("no epoch fell into the time in which all lanes were busy: the clients are too uneven")
    return found
