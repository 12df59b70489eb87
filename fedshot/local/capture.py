"""Work on a GPU recorded once as a CUDA graph and replayed: the host says one word instead of a thousand."""

from collections.abc import Callable, Hashable
from contextlib import suppress

import torch
from torch import Tensor


class CaptureRefused(RuntimeError):
    """Work cannot be captured: it reads a value back, or its shapes depend on data. Nothing was done.

    The generator that it draws from cannot be used any more; `state` is where it stood.
    """

    def __init__(self, reason: str, state: Tensor) -> None:
        super().__init__(reason)
        self.state = state


class Capture:
    """Replays pieces of work, each under its key, on the current stream.

    The first time a piece runs as it is: libraries choose their algorithms, tensors that stay are made. The second time
    it is captured. The work must read and write tensors that keep their place, and draw from `generator` alone.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._met: set[Hashable] = set()
        self._pool = torch.cuda.graph_pool_handle()  # graphs that never run at the same time share their memory

    def __call__(self, key: Hashable, work: Callable[[], object]) -> None:
        """Runs the work; raises CaptureRefused if it cannot be captured."""
        if key not in self._met:
            self._met.add(key)
            work()
            return
        if key not in self._graphs:
            self._graphs[key] = self._recorded(work)
        self._graphs[key].replay()

    def _recorded(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        graph, state = torch.cuda.CUDAGraph(), self._generator.get_state()
        graph.register_generator_state(self._generator)
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            work()
            graph.capture_end()
        except RuntimeError as error:
            with suppress(RuntimeError):
                graph.capture_end()
            if isinstance(error, torch.OutOfMemoryError):
                raise
            raise CaptureRefused(str(error).partition("\n")[0], state) from error
        return graph
