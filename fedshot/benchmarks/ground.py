"""Where is measured and for how long, and what every measurement needs of it."""

import gc
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from fedshot.benchmarks.eager import measure_eager
from fedshot.errors import UserError
from fedshot.experiment import Execution
from fedshot.setting import Setting


@dataclass(frozen=True)
class Ground:
    """Where is measured, and for how long."""

    device: torch.device
    seconds: float  # of steady work in each case, about
    data_root: Path | None = None

    def execution(self, side_by_side: int | None, fused: bool) -> Execution:
        """The package on this ground: so many lanes on a GPU, worker processes on a CPU; None: as it chooses itself."""
        if self.device.type == "cuda":
            return Execution(self.data_root, str(self.device), lanes=side_by_side, fused=fused)
        return Execution(self.data_root, str(self.device), workers=side_by_side or os.cpu_count() or 1)


def expected_speed(setting: Setting, ground: Ground) -> float:
    """About how many images/s the package will train, from a short trial of the eager loop."""
    trial = measure_eager(setting, ground.seconds / 8).images_per_second
    release_memory(ground.device)
    return trial * (6 if ground.device.type == "cuda" else 1)  # on an H200 it was 4 to 9 times as fast


def in_one_line(error: Exception) -> str:
    """What a row says about a failure."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return "out of memory"
    if isinstance(error, UserError):
        return str(error)
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def release_memory(device: torch.device) -> None:
    """What the last case left behind does not count against the next."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
