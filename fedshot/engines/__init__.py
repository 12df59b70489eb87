"""Where clients run: in this process, or in worker processes of this machine."""

from fedshot.engines.job import Job, Watch
from fedshot.engines.local import train_jobs

__all__ = ["Job", "Watch", "train_jobs"]
