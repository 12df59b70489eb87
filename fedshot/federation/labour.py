"""A client's training, in a process of its own: it outlives the question that began it, and ends itself when it hangs.

`python -m fedshot.federation.labour SITE JOB` trains one job of a client and leaves the upload in the job's folder. A
process that is killed is begun again by the next question, and goes on from its checkpoint. One that makes no step for
`stall_seconds` is ended by a watchdog below Python, which writes where it hung; so it never keeps the next job waiting.
"""

import errno
import faulthandler
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from fedshot.errors import UserError
from fedshot.federation.site import JobFolder, Site
from fedshot.store import write_atomic

_BEAT_SECONDS = 0.5  # between two signs of life
_LOCK_SECONDS = 2.0  # in which whoever only looks at a lock has let it go again
_LOOK_SECONDS = 0.1  # between two looks at a training under way
_START_SECONDS = 1800.0  # in which a training reads its data; from the first step on its watchdog is stricter


class Labour(Protocol):
    """Sees to it that a job is trained: begins it, and waits up to some seconds for its end."""

    def __call__(self, site: Site, job: JobFolder, seconds: float) -> None: ...


def in_a_process(site: Site, job: JobFolder, seconds: float) -> None:
    """Trains in a process of its own, which goes on when the seconds are over."""
    number, until = site.read().number, time.monotonic() + seconds
    if not is_held(job.lock):
        _begin(site, job)
    while is_held(job.lock) and time.monotonic() < until and not ready(job, number):
        end_if_stalled(job)
        time.sleep(_LOOK_SECONDS)


def in_this_process(site: Site, job: JobFolder, seconds: float) -> None:
    """Trains here and now, however long it takes."""
    from fedshot.federation.training import work

    work(site, job)


def ready(job: JobFolder, number: int) -> bool:
    """Whether the job has ended, with an upload or with a reason why there is none."""
    summary = job.finished(number)
    return summary is not None and (summary.skipped is not None or job.outgoing.exists())


def epoch_of(job: JobFolder) -> int:
    """The epochs that a training has finished."""
    try:
        return int(json.loads(job.progress.read_bytes())["epoch"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def failure_of(job: JobFolder) -> tuple[str, bool]:
    """Why the last training ended without an upload, and whether it would again."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        told = json.loads(job.failure.read_bytes())
        return str(told["reason"]), bool(told["final"])
    with suppress(OSError):
        if "Timeout (" in job.log.read_text(errors="replace"):
            return "it made no step for too long, and was ended by its watchdog; its log says where it hung", False
    return "its training process died, perhaps for want of memory; asked again, it goes on from its checkpoint", False


def is_held(lock: Path) -> bool:
    """Whether a living process holds a lock."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


def end_if_stalled(job: JobFolder) -> None:
    """Kills a training without a sign of life for twice its patience: one that even its own watchdog cannot end."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        patience = float(json.loads(job.progress.read_bytes())["patience"])
        if time.time() - job.progress.stat().st_mtime > 2 * patience:
            end(job)


def end(job: JobFolder) -> bool:
    """Kills the training process of a job, and says whether there was one; its checkpoint stays."""
    if not is_held(job.lock):
        return False
    with suppress(OSError, ValueError):
        os.kill(int(job.lock.read_text()), signal.SIGKILL)
        return True
    return False


def end_all(site: Site) -> int:
    """Kills all training of a client, as when it leaves the federation; how many there were. Checkpoints stay."""
    return sum(end(JobFolder(folder.absolute())) for folder in sorted(site.path.glob("jobs/*")))


def _begin(site: Site, job: JobFolder) -> None:
    """Starts the training process, in a session of its own, and waits until it has the lock or has ended."""
    job.failure.unlink(missing_ok=True)
    _tell(job, epoch_of(job), _START_SECONDS)
    # -P: nothing is imported from the folder in which the engine happens to start
    command = [sys.executable, "-P", "-m", "fedshot.federation.labour", str(site.path.absolute()), job.path.name]
    into_log = (os.POSIX_SPAWN_OPEN, 1, str(job.log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), into_log, (os.POSIX_SPAWN_DUP2, 1, 2)]
    process = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions, setsid=True)
    while not is_held(job.lock) and os.waitpid(process, os.WNOHANG)[0] == 0:
        time.sleep(_LOOK_SECONDS)


@contextmanager
def _holding(lock: Path, wait: Callable[[], bool]) -> Iterator[None]:
    """The lock, with this process's number in it; while another has it, waits as long as `wait()` says to."""
    with lock.open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not wait():
                    raise
                time.sleep(_LOOK_SECONDS)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _tell(job: JobFolder, epoch: int, patience: float) -> None:
    """Writes down how far a training is, and for how many seconds nobody needs to worry."""
    write_atomic(job.progress, json.dumps({"epoch": epoch, "patience": patience}).encode())


class _Beat:
    """A sign of life at every step: it winds up the watchdog, and tells how far the training is."""

    def __init__(self, job: JobFolder, stall_seconds: float) -> None:
        self._job, self._stall, self._last, self._told = job, stall_seconds, 0.0, -1

    def __call__(self, epoch: int) -> None:
        now = time.monotonic()
        if now - self._last < _BEAT_SECONDS and epoch == self._told:
            return
        faulthandler.dump_traceback_later(self._stall, exit=True)
        if epoch == self._told:
            self._job.progress.touch()
        else:
            _tell(self._job, epoch, self._stall)
        self._last, self._told = now, epoch

    def starting(self) -> bool:
        """A sign of life before the first step: while data are read, or another job of the client has its turn."""
        faulthandler.dump_traceback_later(_START_SECONDS, exit=True)
        self._job.progress.touch()
        return True


def main(site: Site, job: JobFolder) -> None:
    """The life of a training process."""
    give_up = time.monotonic() + _LOCK_SECONDS
    try:
        with _holding(job.lock, lambda: time.monotonic() < give_up):
            _labour(site, job)
    except BlockingIOError:
        return  # another process trains this job


def _labour(site: Site, job: JobFolder) -> None:
    beat = _Beat(job, site.read().stall_seconds)
    beat.starting()
    try:
        with _holding(site.path / "training.lock", beat.starting):  # one job of a client at a time
            from fedshot.federation.training import work  # brings torch, which nobody needs before

            work(site, job, beat)
    except Exception as error:
        final = isinstance(error, UserError)
        reason = str(error) if final else f"{type(error).__name__}: {error}"
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = f"the disk of this client is full: {error}"
        with suppress(OSError):
            write_atomic(job.failure, json.dumps({"reason": reason, "final": final}).encode())
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    client = Site(Path(sys.argv[1]))
    main(client, client.job(sys.argv[2]))
