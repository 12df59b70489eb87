"""One client's work as a value that can travel to another process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
    device: str


Told = Callable[[Job, int], None]  # what an engine tells while it works: a job has finished an epoch
Done = tuple[Job, ClientSummary | Exception]  # how a job ended


class Watch:
    """Follows experiments while they run. This one says nothing; the command line has one that does."""

    def planned(self, jobs: Sequence[Job]) -> None:
        """All that will be trained is known."""

    def epoch(self, job: Job, epoch: int) -> None:
        """A client has finished an epoch. Called from another thread when clients train in other processes."""

    def finished(self, index: int, outcome: "Record | Exception") -> None:
        """A run has ended, well or not."""
