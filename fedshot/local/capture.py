"""Work on a GPU recorded once as a CUDA graph and replayed: the host says one word instead of a thousand."""

from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


class CaptureRefused(RuntimeError):
    """Work cannot be captured: it reads a value back, or its shapes depend on data. Nothing was done.

    The generator that it draws from cannot be used any more; `state` is where it stood, if there is one.
    """

    def __init__(self, reason: str, state: Tensor | None) -> None:
        super().__init__(reason)
        self.state = state


class Capture:
    """Replays pieces of work, each under its key, on the current stream.

    At first a piece runs as it is: libraries choose their algorithms, tensors that stay are made. The next time it is
    captured. The work must read and write tensors that keep their place, and draw from `generator` alone. The tensors
    in its result lie in the memory of the graphs: they last until the next piece of work.
    """

    def __init__(self, generator: torch.Generator | None = None, after: int = 1) -> None:
        self._generator, self._after = generator, after  # runs as it is, before a piece is worth capturing
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, Any]] = {}  # with the result
        self._met = Counter[Hashable]()
        self._pool = torch.cuda.graph_pool_handle()  # graphs that never run at the same time share their memory

    def __call__(self, key: Hashable, work: Callable[[], Result]) -> Result:
        """Runs the work; raises CaptureRefused if it cannot be captured."""
        if self._met[key] < self._after:
            self._met[key] += 1
            return work()
        if key not in self._graphs:
            self._graphs[key] = self._recorded(work)
        graph, result = self._graphs[key]
        graph.replay()
        return result

    def _recorded(self, work: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
        graph, state = torch.cuda.CUDAGraph(), None
        if self._generator is not None:
            state = self._generator.get_state()
            graph.register_generator_state(self._generator)
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            result = work()
            graph.capture_end()
        except RuntimeError as error:
            with suppress(RuntimeError):
                graph.capture_end()
            if isinstance(error, torch.OutOfMemoryError):
                raise
            raise CaptureRefused(str(error).partition("\n")[0], state) from error
        return graph, result
