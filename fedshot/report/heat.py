"""Heat maps: who holds what, and what is recognised."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fedshot.report.style import RAMP, bare, new_figure, short, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

_MOST_VECTOR_CELLS = 800  # more cells than that are drawn as an embedded picture
_WIDTH = 7.6


def class_map(rows: Mapping[str, Sequence[float | None]], divide_after: int | None = None) -> "Figure":
    """Recognised share of each class in percent: a row for each client alone or fused method, a column for each class.

    Args:
        rows: label -> share of each class, None where there is nothing to recognise.
        divide_after: leave a gap after that many rows.
    """
    from matplotlib.colors import Normalize

    def in_cell(share: float) -> str:
        return f"{100 * share:.0f}"

    return _heat_map(rows, Normalize(0, 1), in_cell, divide_after)


def partition_map(partition: Mapping[str, Any]) -> "Figure":
    """Samples of each client and class in the partition of a record, coloured by their logarithm."""
    from matplotlib.colors import LogNorm

    counts = partition["class_counts"]
    bits = partition["entropy_bits"]
    largest = max(max(row) for row in counts)
    rows = {
        f"client {client} · {sum(row):,} · {bits[client]:.2f} bit": [count or None for count in row]
        for client, row in enumerate(counts)
    }
    return _heat_map(rows, LogNorm(1, max(largest, 2)), lambda count: f"{count:.0f}", None)


def _heat_map(
    rows: Mapping[str, Sequence[float | None]],
    scale: "Normalize",
    in_cell: Callable[[float], str],
    divide_after: int | None,
) -> "Figure":
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap

    values = np.array([[np.nan if v is None else v for v in row] for row in rows.values()], dtype=float)
    number, classes = values.shape
    with styled():
        figure = new_figure(_WIDTH, 0.5 + min(0.3 * number, 12.0))
        axes = figure.subplots()
        many = values.size > _MOST_VECTOR_CELLS
        places = np.arange(number + 1.0)
        if divide_after is not None and 0 < divide_after < number:
            values, places = _with_gap(values, places, divide_after)
        axes.pcolormesh(
            np.arange(classes + 1.0),
            places,
            np.ma.masked_invalid(values),
            cmap=LinearSegmentedColormap.from_list("depth", RAMP),
            norm=scale,
            rasterized=many,
        )
        middles = [(top + bottom) / 2 for top, bottom in pairwise(places)]
        if classes <= 25 and not many:
            _write_cells(axes, values, middles, scale, in_cell)
        of_rows = [middle for middle, row in zip(middles, values, strict=True) if not np.isinf(row).all()]
        _label(axes, of_rows, list(rows), classes)
        axes.set_ylim(places[-1], 0)
        bare(axes)
        return figure


def _with_gap(values: Any, places: Any, after: int) -> tuple[Any, Any]:
    """A thin row of infinities, which no share is, between two groups of rows."""
    import numpy as np

    gap = np.full((1, values.shape[1]), np.inf)
    lower = places[after:] + 0.25
    return np.concatenate([values[:after], gap, values[after:]]), np.concatenate([places[: after + 1], lower])


def _write_cells(
    axes: "Axes", values: Any, middles: list[float], scale: "Normalize", tell: Callable[[float], str]
) -> None:
    """The numbers, light on dark and dark on light; a dot in the page's ink where there is none."""
    import numpy as np

    for (row, label), value in np.ndenumerate(values):
        if np.isinf(value):
            continue
        ink: dict[str, Any] = {} if np.isnan(value) else {"color": "#ffffff" if scale(value) > 0.45 else "#173042"}
        text = "·" if np.isnan(value) else tell(value)
        axes.text(label + 0.5, middles[row], text, ha="center", va="center", size=7.5, **ink)


def _label(axes: "Axes", middles: list[float], names: list[str], classes: int) -> None:
    """Names of the rows while they do not run into each other, and numbers of the classes above the map."""
    every = -(-len(names) // 40)
    axes.set_yticks(middles[::every], [short(name) for name in names[::every]])
    step = next(step for step in (1, 5, 10, 20, 50, 100, classes) if classes / step <= 25)
    shown = range(0, classes, step)
    axes.set_xticks([label + 0.5 for label in shown], [str(label) for label in shown])
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("class")
