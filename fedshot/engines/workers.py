"""Clients in worker processes of this machine: one for each core that is given, or one for each GPU."""

import multiprocessing
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fedshot.engines.job import Done, Job, Place, Told, WorkerLost
from fedshot.engines.lanes import train_in_lanes


@dataclass
class Worker:
    """A process as its parent sees it."""

    place: Place
    process: BaseProcess
    pipe: Connection
    jobs: dict[int, Job] = field(default_factory=dict)  # that it has under way, by number


def train_in_workers(jobs: Sequence[Job], places: Sequence[Place], told: Told) -> Iterator[Done]:
    """Trains jobs in one process for each place and yields each as it ends.

    A process that dies takes its jobs with it, and no other; a new one takes its place on a CPU.
    """
    waiting = deque(enumerate(jobs))
    crew = [_start(place) for place in places]
    try:
        while crew:
            pipes = {worker.pipe: worker for worker in crew}
            for pipe in wait(list(pipes)):
                worker = pipes[pipe]  # type: ignore[index]
                try:
                    kind, *content = worker.pipe.recv()
                except (EOFError, OSError):
                    kind, content = "lost", [_death(worker)]
                if kind == "next":
                    _hand_out(worker, waiting)
                elif kind == "epoch":
                    told(worker.jobs[content[0]], content[1])
                elif kind == "done":
                    yield worker.jobs.pop(content[0]), content[1]
                else:
                    crew.remove(worker)
                    _stop([worker])
                    if kind == "lost":
                        if not worker.jobs or (not crew and worker.place.device != "cpu" and waiting):
                            raise WorkerLost(content[0])
                        if waiting and worker.place.device == "cpu":
                            crew.append(_start(worker.place))
                        for job in worker.jobs.values():
                            yield job, WorkerLost(content[0])
    finally:
        _stop(crew)


def _hand_out(worker: Worker, waiting: deque[tuple[int, Job]]) -> None:
    if not waiting:
        worker.pipe.send(None)
        return
    number, job = waiting.popleft()
    worker.jobs[number] = job
    worker.pipe.send((number, job))


def _death(worker: Worker) -> str:
    worker.process.join(timeout=5)
    return (
        f"a worker process died (exit status {worker.process.exitcode}), perhaps for want of memory, or because a "
        'script that calls fedshot with several workers has no `if __name__ == "__main__":`; finished clients are kept'
    )


def _start(place: Place) -> Worker:
    context = multiprocessing.get_context("forkserver")
    # what every worker needs is imported once; optimisers would import torch._dynamo at their first step
    context.set_forkserver_preload(["fedshot.engines.lanes", "torch._dynamo"])
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, place), daemon=True)
    with _interrupts_later():
        process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    return Worker(place, process, ours)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Keeps an interrupt waiting; a process started meanwhile never gets one, whatever it is importing."""
    resource_tracker.ensure_running()  # the first start would do it, and let interrupts in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(crew: Sequence[Worker]) -> None:
    """Ends workers at once: after an interrupt nobody wants to wait for the clients under way."""
    for worker in crew:
        worker.process.terminate()
    for worker in crew:
        worker.process.join()
        worker.pipe.close()


def _work(pipe: Connection, place: Place) -> None:
    """The life of a worker: ask for a job whenever a lane is free, tell how it goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    numbers: dict[tuple[Path, int], int] = {}

    def tell(*content: Any) -> None:
        with _parent_there():
            pipe.send(content)

    def jobs() -> Iterator[Job]:
        while True:
            tell("next")
            with _parent_there():
                given = pipe.recv()
            if given is None:
                return
            number, job = given
            numbers[job.folder, job.client] = number
            yield job

    def tell_epoch(job: Job, epoch: int) -> None:
        tell("epoch", numbers[job.folder, job.client], epoch)

    try:
        for job, outcome in train_in_lanes(jobs(), place, tell_epoch):
            tell("done", numbers[job.folder, job.client], _portable(outcome))
        tell("end")
    except WorkerLost as error:
        tell("lost", str(error))


@contextmanager
def _parent_there() -> Iterator[None]:
    """Ends a worker without a word whose parent is gone: nobody is left to tell."""
    try:
        yield
    except (BrokenPipeError, EOFError, ConnectionResetError):
        raise SystemExit(1) from None


def _portable(outcome: Any) -> Any:
    """An outcome that survives the way to the parent; an error brings the worker's traceback as a note."""
    if not isinstance(outcome, Exception):
        return outcome
    outcome.add_note("".join(traceback.format_exception(outcome)))
    try:
        pickle.loads(pickle.dumps(outcome))
    except Exception:
        return RuntimeError(f"{type(outcome).__name__}: {outcome}")
    return outcome
