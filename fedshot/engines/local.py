"""Jobs on this machine: one after the other here, or side by side in worker processes.

Results do not depend on which: every client draws from its own streams and computes on one thread.
"""

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from multiprocessing.queues import SimpleQueue
from pathlib import Path

from fedshot.engines.job import Done, Job, Told
from fedshot.local.work import train_client
from fedshot.setting import Setting, prepare
from fedshot.spec import Spec
from fedshot.store import ClientSummary, RunFolder


class WorkerLost(RuntimeError):
    """A worker process died. Finished clients are on disk."""


def train_jobs(jobs: Sequence[Job], workers: int, told: Told) -> Iterator[Done]:
    """Trains all jobs, run after run, the largest client of a run first, and yields each as it ends."""
    runs = list(dict.fromkeys(job.folder for job in jobs))
    ordered = sorted(jobs, key=lambda job: (runs.index(job.folder), -job.samples))
    workers = min(workers, len(ordered))
    if workers <= 1 or any(job.device != "cpu" for job in ordered):
        for job in ordered:
            yield job, _outcome(partial(_train, job, partial(told, job)))
    else:
        yield from _side_by_side(ordered, workers, told)


def _side_by_side(jobs: Sequence[Job], workers: int, told: Told) -> Iterator[Done]:
    context = multiprocessing.get_context("forkserver")
    # what every worker needs is imported once; optimisers would import torch._dynamo at their first step
    context.set_forkserver_preload(["fedshot.engines.local", "torch._dynamo"])
    messages: SimpleQueue[tuple[int, int] | None] = context.SimpleQueue()
    listener = threading.Thread(target=_listen, args=(messages, jobs, told), daemon=True)
    listener.start()
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker, initargs=(messages,))
    try:
        futures: dict[Future[ClientSummary], Job] = {pool.submit(_work, i, job): job for i, job in enumerate(jobs)}
        for future in as_completed(futures):
            yield futures[future], _outcome(future.result)
    except BrokenProcessPool:
        raise WorkerLost(
            "a worker process died, perhaps for want of memory, or because a script that calls fedshot with several "
            'workers has no `if __name__ == "__main__":`; finished clients are kept'
        ) from None
    finally:
        _stop(pool)
        # a worker that was ended while it wrote keeps the lock of the queue: nobody may wait for it
        threading.Thread(target=messages.put, args=(None,), daemon=True).start()
        listener.join(timeout=1)


def _outcome(work: Callable[[], ClientSummary]) -> ClientSummary | Exception:
    """How a client's work ended. A fault in one client's objective is that run's fault, not the others'."""
    try:
        return work()
    except BrokenProcessPool:
        raise
    except Exception as error:
        return error


def _stop(pool: ProcessPoolExecutor) -> None:
    """Ends the workers at once: after an interrupt nobody wants to wait for the clients under way."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def _listen(messages: "SimpleQueue[tuple[int, int] | None]", jobs: Sequence[Job], told: Told) -> None:
    while (message := messages.get()) is not None:
        number, epoch = message
        told(jobs[number], epoch)


_messages: "SimpleQueue[tuple[int, int] | None] | None" = None  # of a worker process, set when it starts


def _start_worker(messages: "SimpleQueue[tuple[int, int] | None]") -> None:
    global _messages
    _messages = messages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means


def _work(number: int, job: Job) -> ClientSummary:
    def tell(epoch: int) -> None:
        if _messages is not None:
            _messages.put((number, epoch))

    return _train(job, tell)


def _train(job: Job, tell: Callable[[int], None]) -> ClientSummary:
    setting = _setting(job.spec.model_dump_json(), job.data_root, job.device)
    return train_client(setting, job.client, RunFolder(job.folder), tell)


@lru_cache(maxsize=4)  # the clients of a run share it, and come one after the other
def _setting(spec: str, data_root: Path | None, device: str) -> Setting:
    return prepare(Spec.model_validate_json(spec), data_root, device)
