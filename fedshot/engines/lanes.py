"""Clients side by side on one device: each in a lane of its own, a stream of the GPU with its captured steps.

One thread of the host goes round the lanes and lets each launch its next step; the device works on all of them at once.
On a CPU nothing is captured and lanes gain nothing: there is one unless more are asked for. Results do not depend on
how many there are: every client draws from its own streams and touches nothing of the others.
"""

import time
from collections import deque
from collections.abc import Generator, Iterator
from functools import lru_cache, partial
from pathlib import Path

import torch

from fedshot.engines.job import Done, Job, Place, Told, WorkerLost, too_large
from fedshot.local.train import Bench
from fedshot.local.work import client_work, one_thread
from fedshot.prepare import prepare
from fedshot.setting import Setting
from fedshot.spec import Spec
from fedshot.store import ClientSummary, RunFolder

_MOST_LANES = 8  # beyond it nothing was gained
_IMAGES_AT_ONCE = 1024  # images in the batches of all lanes together that fill a large GPU
_BURST = 32  # steps that a lane launches in its turn: the host may be long at the end of another one's client
_WARM_STEPS = 4  # after which a lane has its memory: a step as it is, a captured one, and some


class Lane:
    """A place for one client at a time."""

    def __init__(self, place: Place) -> None:
        device, self.place = torch.device(place.device), place
        self.stream: torch.cuda.Stream | None = None
        self._outside: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self.stream, self._outside = torch.cuda.Stream(device), torch.cuda.current_stream(device)
        self.job: Job | None = None
        self.work: Generator[bool, None, ClientSummary] | None = None
        self.steps = 0
        self.forget()

    def begin(self, job: Job, told: Told) -> None:
        """Takes a job; nothing is done before the lane advances."""
        if self.stream:
            self.stream.wait_stream(torch.cuda.current_stream())  # the data may still be on their way
        self.job, self.steps, self.work = job, 0, self._work(job, told)

    def _work(self, job: Job, told: Told) -> Generator[bool, None, ClientSummary]:
        tell, folder = partial(told, job), RunFolder(job.folder)
        setting = _setting(job.spec.model_dump_json(), job.data_root, self.place.device, folder.pretrained)
        return (yield from client_work(setting, job.client, folder, tell, self.bench, self.place.checkpoint_seconds))

    def end(self) -> Job:
        """Gives the job back, ended or not."""
        job, self.job, self.work = self.job, None, None
        if job is None:
            raise RuntimeError("a lane without a client has nothing to end")
        return job

    def forget(self) -> None:
        """Drops what is kept for the next client: a broken one may have spoilt it."""
        self.bench = Bench(self.place.captured, self.place.fused)

    def advance(self, most: int = 1) -> bool | ClientSummary | Exception:
        """Launches the next steps, until it must wait. Whether there was one, or how the client's work ended."""
        if self.work is None:
            raise RuntimeError("a lane without a client cannot advance")
        moved = 0
        _use(self.stream)
        try:
            while moved < most and next(self.work):
                moved += 1
        except StopIteration as end:
            return end.value
        except Exception as error:
            return error
        finally:
            _use(self._outside)
        self.steps += moved
        return moved > 0


def _use(stream: torch.cuda.Stream | None) -> None:
    """Makes it the current stream, if there is one: torch's context manager takes as long as a launch."""
    if stream is not None:
        torch.cuda.set_stream(stream)


def train_in_lanes(jobs: Iterator[Job], place: Place, told: Told) -> Iterator[Done]:
    """Trains jobs as they come, several at a time, and yields each as it ends."""
    device = torch.device(place.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    crew, tries_algorithms = Crew(jobs, place, told), torch.backends.cudnn.benchmark
    try:
        with one_thread(device):
            while crew.staff() or crew.busy:
                moved, turns = False, deque(crew.busy)
                while turns:
                    lane = turns.popleft()
                    outcome = lane.advance(_BURST if crew.limit else 1)
                    if isinstance(outcome, bool):
                        moved |= outcome
                        continue
                    if (done := crew.ended(lane, outcome)) is not None:
                        yield done
                    turns.extendleft(crew.staff())  # the next client begins before the others go on
                if not moved:
                    time.sleep(2e-5)  # every lane waits for the device or the disk
    finally:
        torch.backends.cudnn.benchmark = tries_algorithms


class Crew:
    """The lanes of a device, and the jobs that wait for one."""

    def __init__(self, jobs: Iterator[Job], place: Place, told: Told) -> None:
        self.jobs, self.place, self.told = jobs, place, told
        self.device = torch.device(place.device)
        self.busy: list[Lane] = []
        self.free: list[Lane] = []
        self.again: deque[Job] = deque()  # jobs that ran out of memory beside others
        self.exhausted = False
        self.limit: int | None = None  # of busy lanes, once the first one has shown what a lane needs
        self.before = _reserved(self.device)

    def staff(self) -> list[Lane]:
        """Gives jobs to free lanes; those that got one."""
        begun: list[Lane] = []
        while not self.exhausted and len(self.busy) < self._room():
            job = self.again.popleft() if self.again else next(self.jobs, None)
            if job is None:
                self.exhausted = True
                break
            lane = self.free.pop() if self.free else Lane(self.place)
            lane.begin(job, self.told)
            self.busy.append(lane)
            begun.append(lane)
        return begun

    def _room(self) -> int:
        """How many lanes may be busy: one until it has shown what it needs, then as many as pay and fit."""
        if self.device.type == "cpu":
            return self.place.lanes or 1
        if not self.busy:
            return 1
        if self.limit is None and self.busy[0].steps >= _WARM_STEPS:
            free, _ = torch.cuda.mem_get_info(self.device)
            each = max(1, _reserved(self.device) - self.before)
            self.limit = min(self.place.lanes or self._lanes_that_pay(), 1 + int(0.9 * free) // each)
        return self.limit or 1

    def _lanes_that_pay(self) -> int:
        """Two hide each other's waits where a batch fills the device; small batches need more to fill it."""
        batch = self.busy[0].job.spec.batch_size if self.busy[0].job else None
        return min(_MOST_LANES, max(2, _IMAGES_AT_ONCE // (batch or _IMAGES_AT_ONCE)))

    def ended(self, lane: Lane, outcome: ClientSummary | Exception) -> Done | None:
        """How a lane's job ended; None for one that must be tried again with fewer beside it."""
        job = lane.end()
        self.busy.remove(lane)
        self.free.append(lane)
        if isinstance(outcome, Exception):
            lane.forget()
        if isinstance(outcome, torch.OutOfMemoryError):
            outcome.with_traceback(None)  # its frames hold the tensors that were too many
            for idle in self.free:
                idle.forget()
            torch.cuda.empty_cache()
            if self.busy:
                self.limit, self.exhausted = len(self.busy), False
                self.again.append(job)
                return None
            return job, too_large(f"client {job.client}", self.place.device)
        if isinstance(outcome, RuntimeError) and "CUDA error" in str(outcome):
            said = str(outcome).partition("\n")[0]
            raise WorkerLost(f"{self.place.device} stopped answering ({said}); finished clients are kept") from outcome
        return job, outcome


def _reserved(device: torch.device) -> int:
    return torch.cuda.memory_reserved(device) if device.type == "cuda" else 0


@lru_cache(maxsize=4)  # the clients of a run share it, and come one after the other
def _setting(spec: str, data_root: Path | None, device: str, kept: Path) -> Setting:
    return prepare(Spec.model_validate_json(spec), data_root, device, kept)
