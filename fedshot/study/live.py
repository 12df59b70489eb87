"""What a person sees of a study under way: a table on a terminal, elsewhere a line now and then, on standard error."""

import sys
import time
from collections.abc import Sequence
from types import TracebackType

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from fedshot.changed import words_of
from fedshot.engines.job import Job, Watch
from fedshot.record import Record
from fedshot.report.wording import seconds_in_words
from fedshot.study.grid import varying
from fedshot.study.plan import Planned

_SECONDS_BETWEEN_LINES = 30.0  # where there is no terminal to draw a table on


class Tally:
    """How far one run is."""

    def __init__(self, planned: Planned) -> None:
        self.planned = planned
        own = [k for k in range(len(planned.sizes)) if k not in planned.shared]  # the others are trained elsewhere
        self.epochs = {k: planned.spec.epochs if k in planned.finished else 0 for k in own}
        self.outcome: Record | Exception | None = None

    @property
    def under_way(self) -> bool:
        return self.outcome is None and any(e > 0 for k, e in self.epochs.items() if k not in self.planned.finished)

    @property
    def clients(self) -> int:
        """That have finished."""
        return sum(epochs >= self.planned.spec.epochs for epochs in self.epochs.values())


class LiveTable(Watch):
    """Follows a study. It is a context: the table is drawn while it is open."""

    def __init__(self, plan: Sequence[Planned], quiet: bool = False) -> None:
        self.tallies = {planned.folder: Tally(planned) for planned in plan}
        self.axes = [name for name in varying([each.cell.at for each in plan]) if name not in ("method", "seed")]
        self.quiet = quiet
        self.work = sum(tally.planned.work for tally in self.tallies.values())
        self.trained = 0  # samples times epochs, since the start
        self.at_server = ""  # where the server stands with work of its own
        self.started = self.told = time.perf_counter()
        self.console = Console(file=sys.stderr)
        self.drawn = self.console.is_terminal and not quiet
        self.live = Live(console=self.console, get_renderable=self.table, refresh_per_second=4, transient=True)

    def __enter__(self) -> "LiveTable":
        if self.drawn:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self.drawn:
            self.live.stop()
        if kind is KeyboardInterrupt:
            print("fedshot: interrupted; finished clients are kept: the same command goes on", file=sys.stderr)

    def epoch(self, job: Job, epoch: int) -> None:
        tally = self.tallies[job.folder]
        self.trained += job.samples * (epoch - tally.epochs.get(job.client, 0))
        tally.epochs[job.client], self.at_server = epoch, ""
        self._tell()

    def server(self, text: str) -> None:
        self.at_server = text
        self._tell()

    def _tell(self) -> None:
        """A line now and then, where no table is drawn."""
        now = time.perf_counter()
        if not self.drawn and not self.quiet and now - self.told > _SECONDS_BETWEEN_LINES:
            self.told = now
            print(self.line(), file=sys.stderr)

    def ended(self, planned: Planned, outcome: Record | Exception) -> None:
        """A run is over."""
        tally = self.tallies[planned.folder]
        tally.outcome, self.at_server = outcome, ""
        if isinstance(outcome, Record):
            tally.epochs = dict.fromkeys(tally.epochs, planned.spec.epochs)
        if planned.state == "done" or self.quiet:
            return
        over = sum(tally.outcome is not None for tally in self.tallies.values())
        said = f"{outcome.final.accuracy:.1%}" if isinstance(outcome, Record) else f"failed: {outcome}"
        at = "".join(f" {name} {words_of(planned.cell.at[name])}" for name in self.axes if name in planned.cell.at)
        text = f"[{over}/{len(self.tallies)}] {planned.label}{at} seed {planned.spec.seed}: {said}"
        self.live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def seconds_left(self) -> float | None:
        """From the speed since the start; None before there is any."""
        if not self.trained:
            return None
        left = sum(self._left(tally) for tally in self.tallies.values() if tally.outcome is None)
        return (time.perf_counter() - self.started) * left / self.trained

    def _left(self, tally: Tally) -> int:
        sizes, epochs = tally.planned.sizes, tally.planned.spec.epochs
        return sum(sizes[k] * (epochs - done) for k, done in tally.epochs.items())

    def line(self) -> str:
        """The state of the study in one line."""
        failed = sum(isinstance(tally.outcome, Exception) for tally in self.tallies.values())
        done = sum(isinstance(tally.outcome, Record) for tally in self.tallies.values())
        left = self.seconds_left()
        return (
            f"{done} of {len(self.tallies)} runs done, {failed} failed, {self.trained / max(self.work, 1):.0%} of the "
            f"work of this call, {'about ' + seconds_in_words(left) + ' left' if left is not None else 'starting'}"
            f"{'; ' if self.at_server else ''}{self.at_server}"
        )

    def table(self) -> Table:
        """A row for each method, and the line below."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=self.line(), caption_justify="left")
        table.add_column("method", overflow="fold")
        for name in ("runs", "done", "failed", "under way", "clients", "epochs"):
            table.add_column(name, justify="right")
        by_method: dict[str, list[Tally]] = {}
        for tally in self.tallies.values():
            by_method.setdefault(tally.planned.label, []).append(tally)
        for label, tallies in by_method.items():
            clients = sum(tally.clients for tally in tallies), sum(len(tally.epochs) for tally in tallies)
            wanted = sum(len(tally.epochs) * tally.planned.spec.epochs for tally in tallies)
            counts = (
                len(tallies),
                sum(isinstance(tally.outcome, Record) for tally in tallies),
                sum(isinstance(tally.outcome, Exception) for tally in tallies),
                sum(tally.under_way for tally in tallies),
                f"{clients[0]}/{clients[1]}",
                f"{sum(sum(tally.epochs.values()) for tally in tallies)}/{wanted}",
            )
            table.add_row(label, *map(str, counts))
        return table
