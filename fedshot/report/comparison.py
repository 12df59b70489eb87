"""Methods side by side: what each reaches over its seeds, how far that is from the first of them, and what it costs.

The accuracy of a run is that of its last evaluation point. Differences are taken to the first method given, which the
user chose before seeing a result, and over the seeds at which both have the same partition.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedshot.errors import UserError
from fedshot.report.agreement import setting_in_words, warnings_about
from fedshot.report.wording import marks
from fedshot.study.statistics import Paired, Summary, paired_difference, summarise

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
