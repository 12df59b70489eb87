"""Clients of this machine: in this process, or in worker processes, one or several at a time."""

from collections.abc import Iterator, Sequence

from fedshot.engines.job import Done, Job, Place, Told
from fedshot.engines.lanes import train_in_lanes
from fedshot.engines.workers import train_in_workers


def train_jobs(jobs: Sequence[Job], places: Sequence[Place], told: Told) -> Iterator[Done]:
    """Trains all jobs, run after run, the largest client of a run first, and yields each as it ends."""
    runs = {folder: number for number, folder in enumerate(dict.fromkeys(job.folder for job in jobs))}
    ordered = sorted(jobs, key=lambda job: (runs[job.folder], -job.samples))
    if len(places) > 1 and len(ordered) > 1:
        yield from train_in_workers(ordered, places[: len(ordered)], told)
    else:
        yield from train_in_lanes(iter(ordered), places[0], told)
