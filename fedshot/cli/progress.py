"""What a person sees while runs are under way: one bar on a terminal, elsewhere a line now and then."""

import sys
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from fedshot.engines.job import Job, Watch
from fedshot.record import Record

_SECONDS_BETWEEN_LINES = 30.0  # where there is no terminal to draw a bar on


class Progressing(Watch):
    """Writes to standard error, so that standard output holds the result alone."""

    def __init__(
        self,
        labels: Sequence[str],
        quiet: bool,
        interrupted: str = "finished clients are kept: the same command goes on",
    ) -> None:
        self.labels, self.interrupted = labels, interrupted
        self.quiet = quiet
        self.started = time.perf_counter()
        self.ended = 0
        self.told = self.started  # when the last line was written
        self.work = [0, 0]  # done and planned, in samples
        self.console = Console(file=sys.stderr)
        columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
        self.bar = Progress(*columns, console=self.console, disable=quiet or not self.console.is_terminal)
        self.task = self.bar.add_task("preparing", total=None)

    def __enter__(self) -> "Progressing":
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.bar.stop()
        if kind is KeyboardInterrupt:
            print(f"fedshot: interrupted; {self.interrupted}", file=sys.stderr)

    def planned(self, jobs: Sequence[Job]) -> None:
        total = sum(job.samples * job.spec.epochs for job in jobs)
        self.work[1] = total
        self.bar.update(self.task, total=total, description=f"training {len(jobs)} clients")

    def epoch(self, job: Job, epoch: int) -> None:
        text = f"{job.spec.method} seed {job.spec.seed} client {job.client} epoch {epoch}/{job.spec.epochs}"
        self.bar.update(self.task, advance=job.samples, description=text)
        self.work[0] += job.samples
        left = (time.perf_counter() - self.started) * (self.work[1] / self.work[0] - 1)
        self._line(f"{self.work[0] / self.work[1]:.0%} {text}, about {left:.0f} s left")

    def server(self, text: str) -> None:
        self.bar.update(self.task, description=text)
        self._line(text)

    def _line(self, text: str) -> None:
        """A line now and then, where there is no bar."""
        now = time.perf_counter()
        if self.bar.disable and not self.quiet and now - self.told > _SECONDS_BETWEEN_LINES:
            self.told = now
            print(text, file=sys.stderr)

    def finished(self, index: int, outcome: Record | Exception) -> None:
        self.ended += 1
        if self.quiet or len(self.labels) == 1:
            return
        said = f"{outcome.final.accuracy:.1%}" if isinstance(outcome, Record) else f"failed: {outcome}"
        seconds = time.perf_counter() - self.started
        self.bar.console.print(
            f"[{self.ended}/{len(self.labels)}] {self.labels[index]}: {said} ({seconds:.0f} s)", markup=False
        )
