"""Methods side by side: what each reaches over its seeds, how far that is from the first of them, and what it costs.

The accuracy of a run is that of its last evaluation point. Differences are taken to the first method given, which the
user chose before seeing a result, and over the seeds at which both have the same partition.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from fedshot.errors import UserError
from fedshot.report.agreement import setting_in_words, warnings_about
from fedshot.report.wording import bytes_in_words, marks, seconds_in_words
from fedshot.study.statistics import ABSENT, Paired, Summary, paired_difference, percent, points, summarise

if TYPE_CHECKING:
    from fedshot.record import Record

Runs = Mapping[str, Sequence["Record"]]  # the label of a method as the user typed it -> its records, one per seed


@dataclass(frozen=True)
class Figure:
    """A share that not every record has."""

    of: Callable[["Record"], float | None]
    meaning: str  # a sentence below a table


SOME: Mapping[str, Figure] = {
    "held-out": Figure(
        lambda record: record.held_out.accuracy if record.held_out else None,
        "Held-out: on images that clients hold back, {images} or more, to choose by.",
    ),
    "personalised": Figure(
        lambda record: record.final.personalised_accuracy,
        "Personalised: each client's model on classes as often as it holds them, mean over clients.",
    ),
}


@dataclass(frozen=True)
class Row:
    """One method."""

    label: str
    method: str
    fusion: str
    seeds: tuple[int, ...]
    accuracy: Summary
    balanced: Summary
    worst_class: Summary
    calibration_error: Summary
    oracle_routing: Summary
    some: Mapping[str, Summary | None]  # figures that not every record has, by name; None unless all of a row have it
    held_out_images: int  # that the held-out accuracy is of, the fewest of a record
    difference: Paired | None  # to the accuracy of the first method; None for the first method itself
    upload_bytes: float  # mean over the clients that sent one
    client_seconds: float  # of all clients together, mean over seeds
    server_seconds: float
    models_kept: int  # at inference; the most over seeds
    phases: int
    inductive: bool
    skipped: int  # clients of which nothing was fused, over all seeds
    clients: int  # over all seeds

    @property
    def marks(self) -> tuple[str, ...]:
        """What a reader has to know before comparing this row with the others."""
        return marks(self.inductive, self.phases, self.skipped, self.clients)


@dataclass(frozen=True)
class Comparison:
    """Rows in the order given; the first is the reference of the differences."""

    rows: tuple[Row, ...]
    setting: str  # what all rows share
    warnings: tuple[str, ...]

    @property
    def reference(self) -> str:
        return self.rows[0].label

    @property
    def best(self) -> Row | None:
        """The row of the highest mean accuracy; none where the seeds differ, as some seeds are easier than others."""
        if len({row.seeds for row in self.rows}) > 1:
            return None
        return max(self.rows, key=lambda row: row.accuracy.mean)


def comparison(runs: Runs) -> Comparison:
    """The methods of `runs` side by side. Methods may have different seeds; the warnings then say so."""
    _check(runs)
    reference = next(iter(runs.values()))
    rows = [
        _row(label, records, None if number == 0 else reference) for number, (label, records) in enumerate(runs.items())
    ]
    return Comparison(tuple(rows), setting_in_words(runs), warnings_about(runs))


def _check(runs: Runs) -> None:
    if not runs:
        raise UserError("there is nothing to compare: give at least one finished run")
    for label, records in runs.items():
        seeds = [record.spec.seed for record in records]
        if not seeds:
            raise UserError(f"method {label!r} has no finished run: run it first, or leave it out")
        twice = next((seed for seed in seeds if seeds.count(seed) > 1), None)
        if twice is not None:
            raise UserError(f"method {label!r} has two runs of seed {twice}: give one run for each seed")


def _row(label: str, records: Sequence["Record"], reference: Sequence["Record"] | None) -> Row:
    last, clients = records[-1], [client for record in records for client in record.clients]
    sizes = [client.upload_bytes for client in clients if client.skipped is None]
    return Row(
        label=label,
        method=last.spec.method,
        fusion=last.final.fusion,
        seeds=tuple(sorted(record.spec.seed for record in records)),
        accuracy=summarise([record.final.accuracy for record in records]),
        balanced=summarise([record.final.balanced_accuracy for record in records]),
        worst_class=summarise([record.final.worst_class_accuracy for record in records]),
        calibration_error=summarise([record.final.calibration_error for record in records]),
        oracle_routing=summarise([record.final.oracle_routing for record in records]),
        some={name: _of_all([figure.of(record) for record in records]) for name, figure in SOME.items()},
        held_out_images=min(record.held_out.images if record.held_out else 0 for record in records),
        difference=None if reference is None else accuracy_difference(records, reference),
        upload_bytes=sum(sizes) / max(len(sizes), 1),
        client_seconds=summarise([record.cost.client_seconds for record in records]).mean,
        server_seconds=summarise([record.cost.server_seconds for record in records]).mean,
        models_kept=max(record.cost.models_kept for record in records),
        phases=max(record.final.phases for record in records),
        inductive=all(record.final.inductive for record in records),
        skipped=sum(client.skipped is not None for client in clients),
        clients=len(clients),
    )


def _of_all(values: Sequence[float | None]) -> Summary | None:
    """None unless all records tell: a mean over fewer seeds would stand beside those over all."""
    told = [value for value in values if value is not None]
    return summarise(told) if len(told) == len(values) else None


def accuracy_difference(records: Sequence["Record"], reference: Sequence["Record"]) -> Paired:
    """Over the seeds of both at which the clients held the same data: other partitions cannot be paired."""
    held = {record.spec.seed: record.partition["fingerprint"] for record in reference}
    return paired_difference(
        {r.spec.seed: r.final.accuracy for r in records if held.get(r.spec.seed) == r.partition["fingerprint"]},
        {r.spec.seed: r.final.accuracy for r in reference},
    )


def difference_in_words(row: Row) -> str:
    """The paired difference to the first method, which itself is the reference."""
    return "reference" if row.difference is None else points(row.difference)


def some_in_words(row: Row, name: str) -> str:
    """A figure that not every record has, in percent."""
    share = row.some[name]
    return ABSENT if share is None else f"{100 * share.mean:.1f}"


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "accuracy %": lambda row: percent(row.accuracy),
    "difference": difference_in_words,
    "upload": lambda row: bytes_in_words(row.upload_bytes),
    "clients": lambda row: seconds_in_words(row.client_seconds),
    "server": lambda row: seconds_in_words(row.server_seconds),
}
_MORE_COLUMNS: dict[str, Callable[[Row], str]] = {
    "worst class": lambda row: f"{100 * row.worst_class.mean:.1f}",
    "calibration": lambda row: f"{100 * row.calibration_error.mean:.1f}",
    "oracle routing": lambda row: f"{100 * row.oracle_routing.mean:.1f}",
    **{name: partial(some_in_words, name=name) for name in SOME},
    "models kept": lambda row: str(row.models_kept),
}


def known(comparison: Comparison) -> tuple[str, ...]:
    """Names of the figures that not every record has, and a row of these does."""
    return tuple(name for name in SOME if any(row.some[name] for row in comparison.rows))


def legend(comparison: Comparison) -> str:
    """What the columns are."""
    difference = (
        f"Difference: paired over seeds to {comparison.reference}, the first method, in points [95 % interval]. "
        if len(comparison.rows) > 1
        else ""
    )
    images = min((row.held_out_images for row in comparison.rows if row.some["held-out"]), default=0)
    told = "".join(SOME[name].meaning.format(images=f"{images:,}") + " " for name in known(comparison))
    return (
        "Accuracy on all test images after the last epoch, mean ± sample deviation over seeds. "
        f"{difference}{told}Upload: of one client. Seconds: all clients together, and the server."
    )


def as_table(comparison: Comparison, width: int = 100) -> Table:
    """For a terminal of that many columns, at least 80; 110 show more figures of quality.

    Marks stand under the name of a method, warnings under the table, as do held-out and personalised accuracy without a
    column of their own. The highest mean is bold.
    """
    told = known(comparison)
    wide = ("worst class", "calibration", *told) if width >= 110 else ()
    more = {name: _MORE_COLUMNS[name] for name in wide}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption_justify="left", caption_style="")
    table.add_column("method", overflow="fold")
    for name in (*_COLUMNS, *more):
        table.add_column(name, justify="right", no_wrap=name != "difference")
    for row in comparison.rows:
        shown = Text(row.label, style="bold" if row is comparison.best else "")
        for mark in row.marks:
            shown.append(f"\n{mark}", style="yellow not bold")
        table.add_row(shown, *(Text(tell(row)) for tell in (*_COLUMNS.values(), *more.values())))
    caption = Text(comparison.setting, style="bold")
    for name in told if not more else ():
        each = ", ".join(f"{row.label} {some_in_words(row, name)}" for row in comparison.rows)
        caption.append(f"\n{name.capitalize()} accuracy %: {each}.", style="not bold")
    caption.append(f"\n{legend(comparison)}", style="not bold dim")
    for warning in comparison.warnings:
        caption.append(f"\n! {warning}", style="not bold yellow")
    table.caption = caption
    return table


def as_markdown(comparison: Comparison) -> str:
    """A table that ends with what was measured and what to beware of."""
    unknown = SOME.keys() - set(known(comparison))
    columns = {name: tell for name, tell in {**_COLUMNS, **_MORE_COLUMNS}.items() if name not in unknown}
    lines = [
        f"| method | {' | '.join(columns)} |",
        f"|---|{'--:|' * len(columns)}",
    ]
    for row in comparison.rows:
        name = row.label.replace("|", "\\|") + (f" ({'; '.join(row.marks)})" if row.marks else "")
        lines.append(f"| {name} | {' | '.join(tell(row) for tell in columns.values())} |")
    lines += ["", f"{comparison.setting}.", "", legend(comparison)]
    lines += [f"\n**{warning}**" for warning in comparison.warnings]
    return "\n".join(lines) + "\n"
