"""A partition to look at: a map of clients by classes, for the terminal and for a paper."""

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from fedshot.errors import UserError
from fedshot.partition.partition import Partition
from fedshot.partition.pools import Indices

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 100  # clients on a terminal map; the others are counted, not drawn
PAPER = ((226, 239, 246), (126, 190, 205), (38, 122, 158), (16, 52, 92))  # pale to deep blue, evenly darker
TERMINAL = ((76, 96, 112), (33, 130, 150), (64, 176, 130), (244, 190, 70))  # slate to amber, seen on black and on white
SHADES = "░▒▓█"


def as_text(partition: Partition, width: int = 100) -> RenderableType:
    """A terminal map with one row per client: number, cells (brighter is more, by logarithm), samples, entropy in bits.

    Cells show their counts where they fit into the width; narrower cells are shaded, and when there are more classes
    than columns, neighbouring classes share a cell. Shades and counts stay readable without colours.
    """
    name_width = len(str(partition.clients - 1)) + 2
    room = max(width - name_width - len("  samples   bits"), 8)
    counts, merged = _merge(partition.class_counts, room)  # (K, cells)
    widest = len(str(counts.max())) + 1
    cell = widest if widest * counts.shape[1] <= room else min(2, room // counts.shape[1])
    rows = [_head(partition, name_width, cell, merged, counts.shape[1])]
    numbers = zip(counts, partition.sizes, partition.entropy_bits, strict=True)
    for client, (client_counts, size, bits) in enumerate(islice(numbers, MOST_ROWS)):
        row = Text(f"{client:>{name_width - 1}} ", style="bold", no_wrap=True, overflow="crop")
        row.append_text(_cells(client_counts, int(counts.max()), cell, with_counts=cell == widest))
        row.append(f"{size:>9}", style="not bold")
        row.append(f"{bits:>7.2f}", style="not bold dim")
        rows.append(row)
    return Group(*rows, *_foot(partition, merged))


def _merge(class_counts: Indices, room: int) -> tuple[Indices, int]:
    """Sum neighbouring classes until a row fits: the counts, (K, cells), and how many classes a cell stands for."""
    merged = -(-class_counts.shape[1] // room)
    starts = np.arange(0, class_counts.shape[1], merged)
    return np.add.reduceat(class_counts, starts, axis=1), merged


def _cells(counts: Indices, largest: int, cell: int, with_counts: bool) -> Text:
    """One client's cells: counts on colour, or shaded blocks."""
    text = Text()
    for count in counts.tolist():
        depth = _depth(count, largest)
        red, green, blue = _terminal_colour(depth)
        if count == 0:
            text.append("·".rjust(cell) if with_counts else "·".ljust(cell), style="not bold dim")
        elif with_counts:
            ink = "rgb(0,0,0)" if depth > 0.6 else "rgb(255,255,255)"
            text.append(str(count).rjust(cell), style=f"not bold {ink} on rgb({red},{green},{blue})")
        else:
            shade = SHADES[min(int(depth * len(SHADES)), len(SHADES) - 1)]
            text.append(shade * cell, style=f"not bold rgb({red},{green},{blue})")
    return text


def _depth(count: int, largest: int) -> float:
    """Logarithmic place of a count between 1 and the largest count, in [0, 1]."""
    return float(np.log(max(count, 1)) / np.log(max(largest, 2)))


def _terminal_colour(depth: float) -> tuple[int, int, int]:
    """A place on the colour ramp of the terminal."""
    stops = np.linspace(0, 1, len(TERMINAL))
    red, green, blue = (round(float(np.interp(depth, stops, channel))) for channel in zip(*TERMINAL, strict=True))
    return red, green, blue


def _head(partition: Partition, name_width: int, cell: int, merged: int, cells: int) -> Text:
    """Class numbers above the cells, as many as do not run into each other."""
    label_width = len(str(partition.class_counts.shape[1] - 1)) + 1
    every = 1 if cell >= label_width else next(step for step in (5, 10, 20, 50, cells) if step * cell >= label_width)
    marks = ""
    for first in range(0, cells, every):
        label, room = str(first * merged), cell * min(every, cells - first)
        marks += label.rjust(room) if every == 1 else (label if len(label) <= room else "").ljust(room)
    return Text(f"{'':{name_width}}{marks}{'samples':>9}{'bits':>7}", style="dim", no_wrap=True, overflow="crop")


def _foot(partition: Partition, merged: int) -> list[Text]:
    """What the map does not show by itself."""
    notes = [_title(partition)]
    if merged > 1:
        notes.append(f"one cell stands for {merged} classes")
    if partition.clients > MOST_ROWS:
        notes.append(f"{partition.clients - MOST_ROWS} more clients are not shown")
    return [Text(note, style="dim") for note in notes]


def _title(partition: Partition) -> str:
    """The recipe with its parameters, and a warning if clients share samples or samples are left over."""
    parameters = [f"{name.replace('_', ' ')} {value}" for name, value in partition.parameters.items()]
    title = ", ".join([partition.recipe, *parameters])
    if partition.overlap > 0:
        title += f"; clients overlap: {partition.overlap:.0%} of the handed-out samples have several holders"
    if partition.unassigned > 0:
        title += f"; {partition.unassigned:,} samples have no holder"
    return title


def as_figure(partition: Partition, class_names: Sequence[str] | None = None) -> "Figure":
    """A heat map of clients by classes on a logarithmic colour scale, with the client sizes as bars at its right.

    Counts are written into the cells while they are readable. Built without pyplot, so it needs no display and
    leaves no global figure; save it with `figure.savefig`.
    """
    from matplotlib.figure import Figure

    clients, classes = partition.class_counts.shape
    if class_names is not None and len(class_names) < classes:
        raise UserError(f"{len(class_names)} class names do not suffice for {classes} classes: give one for each")
    height, map_width = np.clip(0.42 * clients, 1.6, 9.0), np.clip(0.62 * classes, 4.0, 10.0)
    figure = Figure(figsize=(map_width + 3.4, height + 1.5), layout="constrained", dpi=150)
    grid = figure.add_gridspec(1, 2, width_ratios=(map_width, 2.0), wspace=0.02)
    heat = figure.add_subplot(grid[0])
    bars = figure.add_subplot(grid[1], sharey=heat)
    _draw_heat(heat, partition.class_counts, class_names, cell_inches=min(map_width / classes, height / clients))
    _draw_bars(bars, partition, label_points=min(8.0, 55 * height / clients))
    figure.suptitle(_title(partition), x=0.01, ha="left", fontsize=10, fontweight="bold")
    return figure


def _draw_heat(axes: "Axes", counts: Indices, class_names: Sequence[str] | None, cell_inches: float) -> None:
    """The map of counts, (K, C); empty cells stay paper white."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    clients, classes = counts.shape
    ramp = LinearSegmentedColormap.from_list("depth", [tuple(c / 255 for c in colour) for colour in PAPER])
    scale = LogNorm(vmin=1, vmax=max(int(counts.max()), 2))
    # edges between cells guide the eye as long as they are thinner than the cells
    edges: dict[str, Any] = {"edgecolors": "white", "linewidth": 1.2} if cell_inches > 0.15 else {"rasterized": True}
    mesh = axes.pcolormesh(np.ma.masked_equal(counts, 0), cmap=ramp, norm=scale, **edges)
    if cell_inches > 0.3:
        for (client, label), count in np.ndenumerate(counts):
            ink = "#b8c0c6" if count == 0 else "white" if _depth(int(count), int(counts.max())) > 0.5 else "#1b2a38"
            axes.text(label + 0.5, client + 0.5, str(count) if count else "·", ha="center", va="center", size=7, c=ink)
    named = class_names if classes <= 30 else None  # more names than that run into each other
    axes.set_xticks(*_ticks(classes, named))
    if named is not None and max(map(len, named)) > 4:
        axes.set_xticks(*_ticks(classes, named), rotation=35, ha="right", rotation_mode="anchor")
    axes.set_yticks(*_ticks(clients, None))
    axes.invert_yaxis()
    axes.set_xlabel("" if named else "class", fontsize=9)
    axes.set_ylabel("client", fontsize=9)
    _bare(axes)
    _draw_scale(axes, mesh, int(counts.max()))


def _draw_scale(axes: "Axes", mesh: Any, largest: int) -> None:
    """The colour bar below the map, marked at the powers of ten."""
    bar = axes.figure.colorbar(mesh, ax=axes, location="bottom", shrink=0.4, aspect=32, pad=0.02)
    powers = [10**exponent for exponent in range(len(str(max(largest, 1))))]
    bar.set_ticks(powers, labels=[f"{power:,}" for power in powers])
    bar.minorticks_off()
    bar.set_label("samples (log scale)", fontsize=8)
    bar.ax.tick_params(labelsize=7, length=2)
    bar.outline.set_visible(False)


def _draw_bars(axes: "Axes", partition: Partition, label_points: float) -> None:
    """Samples of each client as a bar, with its size and entropy behind it while the text is readable."""
    sizes = np.array(partition.sizes)
    axes.barh(np.arange(len(sizes)) + 0.5, sizes, height=0.68, color="#267a9e")
    if label_points >= 5:
        for client, (size, bits) in enumerate(zip(partition.sizes, partition.entropy_bits, strict=True)):
            axes.text(size, client + 0.5, f" {size:,} · {bits:.2f} bit", va="center", size=label_points, c="#44525e")
    axes.set_xlim(0, max(int(sizes.max()), 1) * (1.9 if label_points >= 5 else 1.05))
    axes.tick_params(labelleft=False)
    axes.set_xticks([])
    label = "samples · label entropy" if label_points >= 5 else f"samples (longest bar: {sizes.max():,})"
    axes.set_xlabel(label, fontsize=9)
    _bare(axes)


def _ticks(number: int, names: Sequence[str] | None) -> tuple[list[float], list[str]]:
    """Cell centres and their labels, at most about 25 of them."""
    step = next(step for step in (1, 5, 10, 20, 50, 100, number) if number / step <= 25)
    shown = range(0, number, step)
    return [label + 0.5 for label in shown], [names[label] if names else str(label) for label in shown]


def _bare(axes: "Axes") -> None:
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
