"""Work that waits for the disk, beside that of a device."""

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

import torch

Result = TypeVar("Result")


def in_background(work: Callable[[], Result], device: torch.device) -> Generator[bool, None, Result]:
    """Does the work in a thread and yields False until it is done; on a CPU, where nothing else goes on, at once.

    Its error is raised here. Who stops before the end waits for it: nothing is left half done.
    """
    if device.type == "cpu":
        return work()
    doing = _thread().submit(work)
    try:
        while not doing.done():
            yield False
    finally:
        wait([doing])
    return doing.result()


@cache
def _thread() -> ThreadPoolExecutor:
    """One for all lanes: several would take the interpreter from each other, and from the lanes."""
    return ThreadPoolExecutor(1, "fedshot-writer")
