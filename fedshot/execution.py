"""Where and how runs are computed."""

from dataclasses import dataclass
from pathlib import Path

import torch

from fedshot.engines.job import Place
from fedshot.local.work import CHECKPOINT_SECONDS


@dataclass(frozen=True)
class Execution:
    """Where and how a run is computed. None of it changes a result on the CPU."""

    data_root: Path | None = None
    device: str = "cpu"  # "cpu", "cuda" for all GPUs, "cuda:1" for one, "cuda:0,cuda:1" for some
    workers: int = 1  # processes on the CPU; on GPUs it is one for each
    resume: bool = False  # keep clients that an earlier, interrupted run of the same spec finished
    lanes: int | None = None  # clients side by side on each GPU; None: as many as pay
    captured: bool = True  # on a GPU a step is recorded once and replayed
    fused: bool = True  # on a GPU BatchNorm and what follows it are one kernel
    checkpoint_seconds: float = CHECKPOINT_SECONDS  # between two files from which an interrupted client goes on

    @property
    def devices(self) -> tuple[str, ...]:
        """Every device by its full name; the server works on the first."""
        if self.device == "cuda":
            return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))
        return tuple(self.device.split(","))

    @property
    def places(self) -> list[Place]:
        """Where clients are trained, one process each."""
        devices = self.devices * self.workers if self.devices == ("cpu",) else self.devices
        return [Place(d, self.lanes, self.captured, self.fused, self.checkpoint_seconds) for d in devices]


HERE = Execution()  # one client after the other on the CPU
