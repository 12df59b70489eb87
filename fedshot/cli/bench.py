"""`fedshot bench`: how fast training is here, against published code and against the last time."""

import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedshot.cli import settings as s
from fedshot.errors import UserError

if TYPE_CHECKING:
    from fedshot.benchmarks.report import BenchReport

FOLDER = Path("runs/bench")


def bench(
    device: s.DeviceOption = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="fewer and shorter cases: a minute or two")] = False,
    scaling: Annotated[
        bool, typer.Option("--scaling", help="measure cost against the number of clients and of images instead")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="a case, a workload or a row, repeatable: `digits`, `eager`"),
    ] = None,
    data_root: s.RootOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="JSON of all rows (default: runs/bench/DATE.json)"),
    ] = None,
    json: s.JsonOption = False,
) -> None:
    """Measure how fast clients train: with fedshot, with a loop as published code has it, and with a plain torch loop.

    **Examples**

    - `fedshot bench` every case of this machine: ResNet-18 on a GPU, small networks on a CPU

    - `fedshot bench --quick --device cpu` the embedded digits, in a minute

    - `fedshot bench --only resnet18-64 --only published` one workload, and the yardstick of all

    - `fedshot bench --scaling` seconds for a million views and memory, from 5 to 1,000 clients

    Images are source images, each seen as two views. MFU is the share of the measured matrix rate that the training
    work is. Of several GPUs the first is measured. Rows are kept as they come: an interrupted bench loses only the case
    under way. runs/bench/history.jsonl gets a line, and a case that lost more than 20 % since the last one is named; on
    a busy CPU that may be noise.
    """
    from fedshot.benchmarks.report import append_history, read_history

    path = out or FOLDER / f"{datetime.now(UTC):%Y-%m-%d-%H%M%S}.json"
    reports = _reports(s.device_of(device), quick, scaling, only or [], data_root)
    report, interrupted = next(reports), False
    try:
        for report in reports:
            report.save(path)
    except KeyboardInterrupt:
        interrupted = True
        print("\nfedshot: interrupted; the rows that are done are kept", file=sys.stderr)
    if report.rows or report.scaling:
        earlier = read_history(FOLDER / "history.jsonl")
        append_history(FOLDER / "history.jsonl", report)
        _present(report, earlier, path, json)
    if interrupted:
        raise KeyboardInterrupt


def _reports(
    device: str, quick: bool, scaling: bool, only: list[str], data_root: Path | None
) -> "Iterator[BenchReport]":
    """The report before anything is measured, then after each row."""
    import torch

    from fedshot.benchmarks.cases import cases_on_cpu, cases_on_gpu, choose
    from fedshot.benchmarks.ground import Ground
    from fedshot.benchmarks.machine import busy_cores, machine_name
    from fedshot.benchmarks.report import BenchReport
    from fedshot.benchmarks.scaling import scaling_points
    from fedshot.benchmarks.suite import growing
    from fedshot.experiment import Execution
    from fedshot.record import commit, versions

    if scaling and only:
        raise UserError("--only chooses among cases, and --scaling measures none of them: leave one of the two out")
    first = torch.device(Execution(device=device).devices[0])
    on_gpu = first.type == "cuda"
    cases = cases_on_gpu(quick) if on_gpu else cases_on_cpu(quick, os.cpu_count() or 1, data_root)
    chosen = [] if scaling else choose(cases, only)
    points = scaling_points(on_gpu, quick) if scaling else []
    empty = BenchReport(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine_name(first),
        device=first.type,
        quick=quick,
        versions=versions(),
        commit=commit(),
        busy_cores=busy_cores(),
    )
    yield empty
    told = Told(len(chosen) + len(points))
    for report in growing(empty, chosen, points, Ground(first, 1.0 if quick else 8.0, data_root), told.begins):
        told.ended(report)
        yield report


class Told:
    """Progress on standard error: what is being measured, and what came out."""

    def __init__(self, total: int) -> None:
        self.total, self.number, self.name, self.started = total, 0, "", 0.0

    def begins(self, name: str) -> None:
        self.number, self.name, self.started = self.number + 1, name, time.perf_counter()
        print(f"[{self.number}/{self.total}] {name} …", end="", file=sys.stderr, flush=True)

    def ended(self, report: "BenchReport") -> None:
        if report.scaling:
            last = report.scaling[-1]
            found = last.error or f"{last.seconds_per_million_views:,.1f} s / 10⁶ views"
        else:
            row = report.rows[-1]
            found = row.error or f"{row.images_per_second:,.0f} images/s"
        print(f" {found} ({time.perf_counter() - self.started:.0f} s)", file=sys.stderr, flush=True)


def _present(report: "BenchReport", earlier: "list[BenchReport]", path: Path, json: bool) -> None:
    from fedshot.benchmarks.show import case_table, headline, noise, remarks, save_figure, scaling_table

    figures = save_figure(report.scaling, path) if report.scaling else ()
    if json:
        typer.echo(report.model_dump_json(indent=1))
        return
    from rich.console import Console

    from fedshot.benchmarks.report import slower_cases

    console = Console()
    console.print(headline(report), style="bold", markup=False, highlight=False)
    console.print(scaling_table(report.scaling) if report.scaling else case_table(report.rows))
    for said in remarks(report.rows):
        console.print(said, style="dim", markup=False, highlight=False)
    for said in slower_cases(report, earlier):
        console.print(f"slower: {said}", style="yellow", markup=False, highlight=False)
    if report.device == "cpu":
        console.print(noise(report.busy_cores), style="dim", markup=False, highlight=False)
    typer.echo(", ".join(str(file) for file in (path, *figures)))
