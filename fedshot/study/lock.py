"""Two processes never work on one folder unknown to each other. A lock ends with its process, however that ends."""

import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedshot.errors import UserError


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Holds the folder of a study; no other study and no job of one may hold it."""
    with _held(folder, fcntl.LOCK_EX):
        yield


@contextmanager
def among_jobs_in(folder: Path) -> Iterator[None]:
    """Holds the folder together with other jobs; no study may hold it."""
    with _held(folder, fcntl.LOCK_SH):
        yield


@contextmanager
def turn_for(file: Path) -> Iterator[None]:
    """Waits until no other job holds this run."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


@contextmanager
def _held(folder: Path, kind: int) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+") as opened:
        try:
            fcntl.flock(opened, kind | fcntl.LOCK_NB)
        except OSError:
            opened.seek(0)
            holder = opened.read().strip() or "another process"
            raise UserError(
                f"{folder} is in use by {holder}: wait until it ends, stop it, or choose another --out"
            ) from None
        opened.truncate(0)
        opened.write(f"process {os.getpid()} on {platform.node()}\n")
        opened.flush()
        yield
