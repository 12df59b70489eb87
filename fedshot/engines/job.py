"""One client's work as a value that can travel to another process."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedshot.spec import Spec
from fedshot.store import ClientSummary


@dataclass(frozen=True)
class Job:
    """Train client `client` of the run in `folder`."""

    spec: Spec
    client: int
    samples: int
    folder: Path
    data_root: Path | None
    device: str


# What an engine tells while it works: the job, and the epoch that it has finished.
Told = Callable[[Job, int], None]
Done = tuple[Job, ClientSummary]
