"""Work that waits for the disk, beside that of a device."""

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Result = TypeVar("Result")


def in_background(work: Callable[[], Result], device: torch.device) -> Generator[bool, None, Result]:
    """Does the work in a thread and yields False until it is done; on a CPU, where nothing else goes on, at once.

    Its error is raised here. Who stops before the end waits for it: nothing is left half done.
    """
    if device.type == "cpu":
        return work()
    with ThreadPoolExecutor(1) as thread:
        doing = thread.submit(work)
        while not doing.done():
            yield False
        return doing.result()
