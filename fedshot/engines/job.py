"""One client's work as a value that can travel to another process, and where it is done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedshot.errors import UserError
from fedshot.local.work import CHECKPOINT_SECONDS
from fedshot.spec import Spec
from fedshot.store import ClientSummary

if TYPE_CHECKING:
    from fedshot.record import Record


@dataclass(frozen=True)
class Job:
    """Train client `client` of the run in `folder`."""

    spec: Spec
    client: int
    samples: int
    folder: Path
    data_root: Path | None


@dataclass(frozen=True)
class Place:
    """A process's share of a machine: a device, and how many clients are trained side by side on it."""

    device: str
    lanes: int | None = None  # None: as many as pay, on a GPU; one on a CPU
    captured: bool = True  # whether a step is recorded once and replayed, on a GPU
    fused: bool = True  # whether BatchNorm and what follows it are one kernel, on a GPU
    checkpoint_seconds: float = CHECKPOINT_SECONDS


Told = Callable[[Job, int], None]  # what an engine tells while it works: a job has finished an epoch
Done = tuple[Job, ClientSummary | Exception]  # how a job ended


class WorkerLost(RuntimeError):
    """A process or a device stopped in the middle of its work. Finished clients are on disk."""


def too_large(what: str, device: str) -> UserError:
    """The error of something that a device's memory does not hold."""
    return UserError(
        f"{what} does not fit the memory of {device}: choose a smaller --batch-size or --encoder; finished clients are "
        "kept, the same command, without --fresh, goes on"
    )


class Watch:
    """Follows experiments while they run. This one says nothing; the command line has one that does."""

    def planned(self, jobs: Sequence[Job]) -> None:
        """All that will be trained is known."""

    def epoch(self, job: Job, epoch: int) -> None:
        """A client has finished an epoch."""

    def server(self, text: str) -> None:
        """Where the server stands with long work of its own."""

    def finished(self, index: int, outcome: "Record | Exception") -> None:
        """A run has ended, well or not."""
