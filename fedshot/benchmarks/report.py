"""What a bench found: one JSON file, a line in the history, and what became slower since the last time."""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from fedshot.benchmarks.cases import Loop
from fedshot.record import Frozen
from fedshot.store import write_atomic

SLOWER = 0.2  # the loss of speed that is told


class Row(Frozen):
    """One case. A case that failed has an error and no figures."""

    name: str  # WORKLOAD/ROW
    loop: Loop
    data: str
    encoder: str
    batch_size: int
    clients: int
    side_by_side: int
    fused: bool
    images_per_second: float | None = None  # source images; each is seen as all its views
    times_published: float | None = None  # against the published loop on the same workload in the same bench
    flops_per_image: int | None = None  # of a training step: all views, forward and backward
    mfu: float | None = None  # model FLOP utilisation: that work as a share of the measured matrix rate
    seconds_per_client_epoch: float | None = None
    startup_seconds: float | None = None
    peak_memory_bytes: int | None = None
    note: str = ""
    error: str | None = None

    @property
    def workload(self) -> str:
        return self.name.partition("/")[0]


class ScalingRow(Frozen):
    """Cost at one number of clients and images."""

    clients: int
    images: int
    epochs: int
    seconds_per_million_views: float | None = None  # of training, its start-up included
    training_memory_bytes: int | None = None  # the largest peak of a client's training
    whole_memory_bytes: int | None = None  # with the server's part
    error: str | None = None


class BenchReport(Frozen):
    """All that one call of `fedshot bench` found, and on what."""

    date: str  # ISO 8601, UTC
    machine: str
    device: str
    quick: bool
    versions: dict[str, str]
    commit: str | None
    busy_cores: float | None = None  # kept busy by other work before the bench began; None where it is not known
    matrix_flops_per_second: float = 0.0  # the best product of large matrices: bf16 on a GPU, float32 on a CPU
    rows: tuple[Row, ...] = ()
    scaling: tuple[ScalingRow, ...] = ()

    def save(self, path: Path) -> None:
        write_atomic(path, self.model_dump_json(indent=1).encode())

    def with_row(self, row: Row, matrix_flops_per_second: float) -> "BenchReport":
        """One row more. What is relative is worked out anew, against the best matrix rate seen so far."""
        rate = max(self.matrix_flops_per_second, matrix_flops_per_second)
        rows = tuple(related(each, (*self.rows, row), rate) for each in (*self.rows, row))
        return self.model_copy(update={"rows": rows, "matrix_flops_per_second": rate})


def related(row: Row, rows: Sequence[Row], rate: float) -> Row:
    """A row with its share of the matrix rate, and its multiple of the published loop on the same workload."""
    speed, work = row.images_per_second, row.flops_per_image
    if speed is None or work is None:
        return row
    published = next((r.images_per_second for r in rows if r.workload == row.workload and r.loop == "published"), None)
    return row.model_copy(
        update={"mfu": speed * work / rate, "times_published": speed / published if published else None}
    )


def append_history(path: Path, report: BenchReport) -> None:
    """One line more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(report.model_dump(mode="json")) + "\n")


def read_history(path: Path) -> list[BenchReport]:
    """Earlier reports, oldest first; a line that is damaged or of another form is left out."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            found.append(BenchReport.model_validate_json(line))
        except ValidationError:
            continue
    return found


def slower_cases(report: BenchReport, history: Sequence[BenchReport]) -> list[str]:
    """A sentence for each case that lost more than 20 % against its last measurement on the same machine and device."""
    said = []
    for row in report.rows:
        past = [
            (earlier.date, known.images_per_second)
            for earlier in history
            if (earlier.machine, earlier.device, earlier.quick) == (report.machine, report.device, report.quick)
            for known in earlier.rows
            if (known.name, known.data) == (row.name, row.data) and known.images_per_second
        ]
        if past and row.images_per_second and row.images_per_second < (1 - SLOWER) * past[-1][1]:
            date, speed = past[-1]
            loss = 100 * (1 - row.images_per_second / speed)
            said.append(
                f"{row.name}: {row.images_per_second:,.0f} images/s, {loss:.0f} % slower than {speed:,.0f} on {date}"
            )
    return said
