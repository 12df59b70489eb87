"""The critical-difference diagram, Demšar 2006, figure 1: methods on an axis of average ranks, ties joined by bars."""

from pathlib import Path
from typing import TYPE_CHECKING

from fedshot.errors import UserError
from fedshot.report.style import COLOURS, INK, new_figure, short, styled
from fedshot.study.ranks import rival_groups
from fedshot.study.statistics import Ranks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = (".svg", ".pdf", ".png")


def rank_diagram(ranks: Ranks) -> "Figure":
    """The best method stands left. Methods under one bar do not differ by more than the critical difference."""
    names = sorted(ranks.average, key=lambda name: ranks.average[name])
    groups = rival_groups(ranks)
    half = -(-len(names) // 2)
    lowest = 0.7 + 0.22 * len(groups) + 0.42 * half
    with styled():
        figure = new_figure(6.4, 1.1 + 0.75 * lowest)
        axes = figure.subplots()
        axes.set_axis_off()
        axes.set_ylim(lowest, -0.95)
        axes.set_xlim(1, len(names))
        axes.plot([1, len(names)], [0, 0], color=INK, lw=0.9, clip_on=False)
        for place in range(1, len(names) + 1):
            axes.plot([place, place], [0, -0.08], color=INK, lw=0.9, clip_on=False)
            axes.annotate(str(place), (place, -0.12), ha="center", va="bottom", annotation_clip=False)
        _draw_difference(axes, ranks, len(names))
        for number, group in enumerate(groups):
            ends = [ranks.average[group[0]] - 0.03, ranks.average[group[-1]] + 0.03]
            axes.plot(ends, [0.3 + 0.22 * number] * 2, color=COLOURS[0], lw=3.2, solid_capstyle="round", clip_on=False)
        first = 0.55 + 0.22 * len(groups)
        for number, name in enumerate(names):
            left = number < half
            height = first + 0.42 * (number if left else len(names) - 1 - number)
            _draw_method(axes, name, ranks.average[name], height, left)
        figure.supxlabel(f"average rank over {ranks.n} cells; 1 is best", fontsize=9)
        return figure


def _draw_difference(axes: "Axes", ranks: Ranks, most: int) -> None:
    """The critical difference as a length, at the upper left."""
    end = min(1 + ranks.critical_difference, most)
    axes.plot([1, end], [-0.7, -0.7], color=INK, lw=1.6, marker="|", ms=7, clip_on=False)
    wider = " (wider than the axis)" if 1 + ranks.critical_difference > most else ""
    axes.annotate(
        f"critical difference {ranks.critical_difference:.2f}{wider}",
        ((1 + end) / 2, -0.7),
        xytext=(0, 5),
        textcoords="offset points",
        ha="center",
        annotation_clip=False,
    )


def _draw_method(axes: "Axes", name: str, rank: float, height: float, left: bool) -> None:
    """A line from the rank down and out to the name at the side."""
    side = 0.0 if left else 1.0
    axes.plot([rank, rank], [0, height], color=INK, lw=0.9, clip_on=False)
    axes.annotate(
        f"{short(name)}  {rank:.2f}" if left else f"{rank:.2f}  {short(name)}",
        (rank, height),
        xytext=(side - 0.02 if left else side + 0.02, height),
        textcoords=("axes fraction", "data"),
        ha="right" if left else "left",
        va="center",
        arrowprops={"arrowstyle": "-", "color": INK, "lw": 0.9, "shrinkA": 1, "shrinkB": 0},
        annotation_clip=False,
    )


def save_diagram(ranks: Ranks, file: Path) -> None:
    """Writes the diagram as its name says: .svg, .pdf or .png."""
    if file.suffix not in KINDS:
        raise UserError(f"{file}: a figure is written as {', '.join(KINDS)}: choose one of these endings")
    file.parent.mkdir(parents=True, exist_ok=True)
    with styled():
        rank_diagram(ranks).savefig(file, dpi=200)
