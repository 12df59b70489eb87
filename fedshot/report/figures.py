"""Figures of a comparison and of a run. Each is a matplotlib Figure without pyplot; save one with `figure.savefig`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedshot.report.style import COLOURS, INK, colour, marker, new_figure, short, styled
from fedshot.report.telemetry import Rows
from fedshot.study.statistics import percent, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedshot.record import Record

MOST_PANELS = 12
_LAMBDAS: dict[
    str, tuple[str, dict[str, Any]]
] = {  # widths and dashes differ too, for prints and for readers who do not tell the colours apart
    "lambda_raw": ("raw", {"color": COLOURS[6], "lw": 5.0, "alpha": 0.4}),
    "lambda_equilibrium": ("predicted equilibrium", {"color": COLOURS[1], "lw": 1.4, "ls": (0, (4, 2))}),
    "lambda_effective": ("effective", {"color": COLOURS[2], "lw": 1.6}),
    "attenuation": ("attenuation", {"color": COLOURS[4], "lw": 1.2, "ls": (0, (1, 2))}),
}


def accuracy_dots(runs: Mapping[str, Sequence["Record"]]) -> "Figure":
    """Accuracy of the last evaluation point: a dot for each seed, a bar at the mean, a thread through equal seeds."""
    with styled():
        figure = new_figure(5.6, 0.9 + 0.52 * len(runs))
        axes = figure.subplots()
        axes.grid(True, axis="x")
        _threads(axes, runs)
        for place, records in enumerate(runs.values()):
            values = [100 * record.final.accuracy for record in records]
            found = summarise([record.final.accuracy for record in records])
            axes.plot(values, [place] * len(values), "o", ms=6, mew=0, color=colour(place), alpha=0.55, zorder=3)
            axes.plot([100 * found.mean] * 2, [place - 0.24, place + 0.24], color=colour(place), lw=3, zorder=4)
            axes.annotate(
                percent(found),
                (1.02, place),
                xycoords=("axes fraction", "data"),
                va="center",
                annotation_clip=False,
            )
        axes.set_yticks(range(len(runs)), [short(label) for label in runs])
        axes.set_ylim(len(runs) - 0.5, -0.5)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("accuracy on the test images, %")
        return figure


def accuracy_bars(runs: Mapping[str, Sequence["Record"]]) -> "Figure":
    """A leaderboard for print: a bar to the mean, a whisker of one sample deviation, a dot for each seed."""
    with styled():
        figure = new_figure(5.6, 0.9 + 0.4 * len(runs))
        axes = figure.subplots()
        axes.grid(True, axis="x")
        for place, records in enumerate(runs.values()):
            found = summarise([record.final.accuracy for record in records])
            mean, spread = 100 * found.mean, 100 * (found.std or 0.0)
            axes.barh(place, mean, height=0.62, color=colour(place), alpha=0.55)
            axes.plot([mean - spread, mean + spread], [place] * 2, color=INK, lw=1.4, zorder=3)
            values = [100 * record.final.accuracy for record in records]
            axes.plot(values, [place] * len(values), "o", ms=3.5, mew=0, color=INK, zorder=4)
            axes.annotate(percent(found), (1.02, place), xycoords=("axes fraction", "data"), va="center")
        axes.set_yticks(range(len(runs)), [short(label) for label in runs])
        axes.set_ylim(len(runs) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("accuracy on the test images, %")
        return figure


def _threads(axes: "Axes", runs: Mapping[str, Sequence["Record"]]) -> None:
    """Faint lines between the dots of one seed: methods that share a partition are compared along them."""
    for seed in sorted({record.spec.seed for records in runs.values() for record in records}):
        of_seed = [[r.final.accuracy for r in records if r.spec.seed == seed] for records in runs.values()]
        places = [(100 * found[0], place) for place, found in enumerate(of_seed) if found]
        axes.plot(*zip(*places, strict=True), color=INK, lw=0.8, alpha=0.35, zorder=2)


def accuracy_curves(runs: Mapping[str, Sequence["Record"]]) -> "Figure":
    """Accuracy over local epochs: the mean over seeds, and a band of one sample deviation where there are several."""
    with styled():
        figure = new_figure(5.6, 3.3)
        axes = figure.subplots()
        axes.grid(True)
        for place, (label, records) in enumerate(runs.items()):
            at = {epoch: summarise(values) for epoch, values in _by_epoch(records).items()}
            means = [100 * found.mean for found in at.values()]
            kind: dict[str, Any] = {"color": colour(place), "marker": marker(place), "ms": 4.5, "mew": 0, "lw": 1.8}
            axes.plot(list(at), means, label=short(label), zorder=3, **kind)
            spread = [100 * (found.std or 0.0) for found in at.values()]
            if any(spread):
                low = [mean - std for mean, std in zip(means, spread, strict=True)]
                high = [mean + std for mean, std in zip(means, spread, strict=True)]
                axes.fill_between(list(at), low, high, color=colour(place), alpha=0.13, lw=0)
        axes.locator_params(axis="x", integer=True)
        axes.set_xlabel("local epoch")
        axes.set_ylabel("accuracy, %")
        figure.legend(loc="outside lower left", ncols=2 if len(runs) in (2, 4) else 3)
        return figure


def _by_epoch(records: Sequence["Record"]) -> dict[int, list[float]]:
    """Accuracies of all seeds at the epochs that every one of them was evaluated at."""
    curves = [{point.epoch: point.accuracy for point in record.curve} for record in records]
    shared = sorted(set.intersection(*(set(curve) for curve in curves)))
    return {epoch: [curve[epoch] for curve in curves] for epoch in shared}


def has_lambda(rows: Rows) -> bool:
    """Whether any client weighed an alignment loss at all."""
    return any(row.get("lambda_effective") for row in rows)


def lambda_paths(rows: Rows, sizes: Mapping[int, int] | None = None) -> "Figure":
    """The weight of the alignment loss in each client: raw, as it really acted, the equilibrium it should approach.

    Args:
        rows: telemetry of one run.
        sizes: samples of each client, for the titles; with more than 12 clients, those with most samples are drawn.
    """
    clients = sorted({int(row["client"] or 0) for row in rows})
    known = sizes or {}
    drawn = sorted(sorted(clients, key=lambda client: -known.get(client, 0))[:MOST_PANELS])
    columns = min(3, len(drawn))
    lines = -(-len(drawn) // columns)
    with styled():
        figure = new_figure(1.0 + 2.3 * columns, 0.75 + 1.55 * lines)
        panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flatten()
        for axes, client in zip(panels, drawn, strict=False):
            _draw_lambdas(axes, [row for row in rows if row["client"] == client])
            axes.set_title(f"client {client}" + (f" · {known[client]:,} samples" if client in known else ""))
        for axes in panels[len(drawn) :]:
            axes.set_visible(False)
        if _spans_decades(rows):
            panels[0].set_yscale("log")
            # powers as plain numbers: the page draws text itself and knows no formulas
            panels[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            panels[0].yaxis.set_minor_formatter(lambda value, _: "")
        panels[0].locator_params(axis="x", integer=True)
        figure.supxlabel("local epoch", fontsize=9)
        figure.supylabel("λ", fontsize=11, rotation=0)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=4 if columns > 1 else 2)
        return figure


def _draw_lambdas(axes: "Axes", rows: Rows) -> None:
    axes.grid(True)
    epochs = [row["epoch"] or 0 for row in rows]
    alone: dict[str, Any] = {"marker": "o", "ms": 4} if len(rows) == 1 else {}
    for name, (label, look) in _LAMBDAS.items():
        values = [float("nan") if (value := row.get(name)) is None else value for row in rows]
        if name == "attenuation" and all(row.get(name) is None for row in rows):
            continue
        axes.plot(epochs, values, label=label, **look, **alone)


def _spans_decades(rows: Rows) -> bool:
    """Whether a linear axis would flatten most of the lines."""
    names = [name for name in _LAMBDAS if name.startswith("lambda")]
    values = [value for row in rows for name in names if (value := row.get(name)) is not None]
    return min(values) > 0 and max(values) / min(values) > 50
