"""A bench as a person reads it: tables, what became slower, and a figure of the scaling."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from fedshot.benchmarks.report import BenchReport, Row, ScalingRow
from fedshot.report.style import colour, marker, new_figure, styled
from fedshot.report.wording import bytes_in_words, seconds_in_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = ("case", "images/s", "× published", "MFU", "epoch", "start-up", "memory")
_SCALING_COLUMNS = ("clients", "images", "epochs", "s / 10⁶ views", "training memory", "with the server")
_NONE = "–"


def headline(report: BenchReport) -> str:
    """The machine and its yardstick."""
    kind = "bf16" if report.device.startswith("cuda") else "float32"
    rate = report.matrix_flops_per_second / 1e12
    return report.machine + (f", {rate:,.3g} TFLOP/s in {kind} matrix products" if rate else "")


def case_table(rows: Sequence[Row]) -> Table:
    """One line a case; a case that failed says why."""
    table = _empty(_COLUMNS, left=1)
    for row in rows:
        table.add_row(*(Text(cell) for cell in _cells(row)))
    return table


def _cells(row: Row) -> tuple[str, ...]:
    if row.images_per_second is None:
        return row.name, "failed", *[_NONE] * (len(_COLUMNS) - 2)
    return (
        row.name,
        f"{row.images_per_second:,.0f}",
        f"{row.times_published:.3g}" if row.times_published else _NONE,
        f"{row.mfu:.1%}" if row.mfu else _NONE,
        seconds_in_words(row.seconds_per_client_epoch or 0.0),
        _NONE if row.startup_seconds is None else seconds_in_words(row.startup_seconds),
        bytes_in_words(row.peak_memory_bytes or 0),
    )


def remarks(rows: Sequence[Row]) -> list[str]:
    """What stands below the table: what each workload is, what a row is made of, why one failed."""
    works = {row.workload: row for row in rows}
    said = [
        f"{w}: {r.data}, {r.encoder}, batches of {r.batch_size}, {r.clients} alike clients" for w, r in works.items()
    ]
    return said + [f"{row.name}: {row.error or row.note}" for row in rows if row.error or row.note]


def noise(busy_cores: float | None) -> str:
    """How far the timings of a CPU can be trusted."""
    if busy_cores and busy_cores > 0.25:
        return (
            f"other work kept {busy_cores:.1f} cores busy: loops that use all cores, published and eager, suffer most, "
            "so the ratios flatter fedshot; measure again on an idle machine"
        )
    return "timings of a CPU are noisy: compare within one table"


def scaling_table(rows: Sequence[ScalingRow]) -> Table:
    """One line a point."""
    table = _empty(_SCALING_COLUMNS, left=0)
    for row in rows:
        found = row.seconds_per_million_views
        table.add_row(
            f"{row.clients:,}",
            f"{row.images:,}",
            str(row.epochs),
            Text(row.error or _NONE) if found is None else f"{found:,.1f}",
            bytes_in_words(row.training_memory_bytes) if row.training_memory_bytes else _NONE,
            bytes_in_words(row.whole_memory_bytes) if row.whole_memory_bytes else _NONE,
        )
    return table


def _empty(columns: tuple[str, ...], left: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < left else "right", no_wrap=place < left)
    return table


def save_figure(rows: Sequence[ScalingRow], path: Path) -> tuple[Path, ...]:
    """The figure of the scaling beside the report, as SVG and PNG."""
    files = tuple(path.with_suffix(suffix) for suffix in (".svg", ".png"))
    figure = scaling_figure(rows)
    with styled():
        for file in files:
            figure.savefig(file, dpi=160)
    return files


def scaling_figure(rows: Sequence[ScalingRow]) -> "Figure":
    """Seconds for a million views and memory: against clients at equal data, and against images with few clients."""
    done = [row for row in rows if row.seconds_per_million_views is not None]
    fewest = min((row.clients for row in done), default=0)
    shared = max((row.images for row in done if row.clients > fewest), default=0)
    with styled():
        figure = new_figure(6.4, 4.6)
        panels = figure.subplots(2, 2, sharey="row", squeeze=False)
        by_clients = sorted((row for row in done if row.images == shared), key=lambda row: row.clients)
        by_images = sorted((row for row in done if row.clients == fewest), key=lambda row: row.images)
        _column(panels[:, 0], [row.clients for row in by_clients], by_clients)
        _column(panels[:, 1], [row.images for row in by_images], by_images)
        panels[0, 0].set_title(f"{shared:,} images in all")
        panels[0, 1].set_title(f"{fewest} clients")
        panels[0, 0].set_ylabel("seconds / 10⁶ views")
        panels[1, 0].set_ylabel("peak memory, GB")
        panels[1, 0].set_xlabel("clients")
        panels[1, 1].set_xlabel("images")
        figure.legend(*panels[1, 0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
        return figure


def _column(panels: Any, along: list[int], rows: Sequence[ScalingRow]) -> None:
    lines = (
        (0, "training", [row.seconds_per_million_views or 0.0 for row in rows]),
        (1, "training", [(row.training_memory_bytes or 0) / 1e9 for row in rows]),
        (1, "with the server", [(row.whole_memory_bytes or 0) / 1e9 for row in rows]),
    )
    for panel, label, values in lines:
        number = 0 if label == "training" else 1
        look: dict[str, Any] = {"color": colour(number), "marker": marker(number), "ms": 4.5, "mew": 0, "lw": 1.8}
        panels[panel].plot(along, values, label=label, **look)
    for axes in panels:
        axes.grid(True)
        axes.set_xscale("log")
        axes.set_xticks(along, [f"{value:,}" for value in along], minor=False)
        axes.set_xticks([], minor=True)
        axes.set_ylim(0, 1.08 * max(axes.get_ylim()[1], *(max(line.get_ydata()) for line in axes.lines)))
