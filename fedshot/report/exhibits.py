"""The figures of a page, each with a title, a caption, and a description for readers who cannot see it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedshot.report.agreement import recipe_in_words
from fedshot.report.figures import accuracy_curves, accuracy_dots, has_lambda, lambda_paths
from fedshot.report.heat import class_map, partition_map
from fedshot.report.style import as_svg
from fedshot.report.telemetry import Rows
from fedshot.report.wording import number_of
from fedshot.study.statistics import percent, summarise

if TYPE_CHECKING:
    from fedshot.record import Record

Shares = Sequence[float | None]  # of each class; None for a class without test images


@dataclass(frozen=True)
class Exhibit:
    """A figure as a page shows it."""

    title: str
    caption: str
    svg: str
    wide: bool = False  # takes the whole width
    heat: bool = False  # a heat map, which keeps a light ground on a dark page


def accuracy_exhibits(runs: Mapping[str, Sequence["Record"]], name: str = "") -> dict[str, Exhibit]:
    """Dots of all seeds, and curves if any run was evaluated more than once. The name keeps tasks of a page apart."""
    told = {label: percent(summarise([r.final.accuracy for r in records])) for label, records in runs.items()}
    description = "Accuracy in percent: " + "; ".join(f"{label} {value}" for label, value in told.items())
    dots = Exhibit(
        "Accuracy",
        "A mark is a seed, a bar the mean; a thread joins the runs of one seed.",
        as_svg(accuracy_dots(runs), f"accuracy{name}", description),
    )
    if all(len(record.curve) < 2 for records in runs.values() for record in records):
        return {"dots": dots}
    ends = {label: [records[0].curve[0], records[0].curve[-1]] for label, records in runs.items()}
    rise = "; ".join(
        f"{label} from {100 * first.accuracy:.1f} after epoch {first.epoch} to {100 * last.accuracy:.1f}"
        for label, (first, last) in ends.items()
    )
    svg = as_svg(accuracy_curves(runs), f"curves{name}", f"Accuracy over local epochs, first seed: {rise}")
    caption = "Snapshots of all clients, fused and scored; clients never receive anything. Band: one sample deviation."
    return {"dots": dots, "curves": Exhibit("Accuracy over local epochs", caption, svg)}


def partition_exhibit(record: "Record") -> Exhibit:
    """Who holds what in one run."""
    sizes, classes = record.partition["sizes"], len(record.partition["class_counts"][0])
    federation = f"{number_of(len(sizes), 'client')} with {min(sizes):,} to {max(sizes):,} samples"
    description = f"Samples of each client and class: {federation} of {classes} classes"
    caption = (
        f"{recipe_in_words(record)}, seed {record.spec.seed}, fingerprint {record.partition['fingerprint'][:12]}. "
        "Rows: samples and label entropy of a client. The stronger the colour, the more, by logarithm."
    )
    svg = as_svg(partition_map(record.partition), "partition", description)
    return Exhibit("Who holds what", caption, svg, wide=True, heat=True)


def class_exhibit(runs: Mapping[str, Sequence["Record"]], name: str = "") -> Exhibit:
    """What each method recognises of each class, mean over its seeds."""
    rows = {label: _mean_shares([r.final.per_class_accuracy for r in records]) for label, records in runs.items()}
    worst = "; ".join(f"{label} class {_lowest(shares)}" for label, shares in rows.items())
    description = f"Recognised share of each class; the least recognised is: {worst}"
    svg = as_svg(class_map(rows), f"classes{name}", description)
    caption = "Recognised share of each class in percent, mean over seeds."
    return Exhibit("Class by class", caption, svg, wide=True, heat=True)


def client_class_exhibit(label: str, record: "Record", number: int) -> Exhibit | None:
    """Each client alone above the fusion of all, for one run; None for a record without classes of single clients."""
    alone = shares_alone(record)
    if not alone:
        return None
    rows = {**alone, "fused": record.final.per_class_accuracy}
    description = (
        f"Recognised share of each class by {number_of(len(alone), 'client')} alone and by their fusion, {label}"
    )
    svg = as_svg(class_map(rows, divide_after=len(alone)), f"clients-{number}", description)
    caption = f"Each client alone on the whole test set, and the fusion of all, in percent. Seed {record.spec.seed}."
    return Exhibit(f"{label}: clients alone and fused", caption, svg, wide=True, heat=True)


def shares_alone(record: "Record") -> dict[str, Shares]:
    """Recognised share of each class by each fused client; empty where the record does not keep it."""
    found = {client.id: client.per_class_alone for client in record.clients}
    return {f"client {client}": shares for client, shares in found.items() if shares is not None}


def lambda_exhibit(label: str, record: "Record", rows: Rows, number: int) -> Exhibit | None:
    """The alignment weights of a run; None for a method without alignment."""
    if not has_lambda(rows):
        return None
    sizes = {client.id: client.samples for client in record.clients}
    last = max(int(row["epoch"] or 0) for row in rows)
    at_end = [row for row in rows if row["epoch"] == last and row.get("lambda_effective") is not None]
    told = "; ".join(f"client {row['client']} {row['lambda_effective']:.2f}" for row in at_end[:12])
    svg = as_svg(lambda_paths(rows, sizes), f"lambda-{number}", f"Weight λ of {label}; effective at the end: {told}")
    caption = (
        "Raw: the policy's own ratio. Effective: what multiplied the alignment gradient. "
        f"Equilibrium: where raw would settle if the losses stood still. Seed {record.spec.seed}."
    )
    return Exhibit(f"{label}: weight of the alignment loss", caption, svg, wide=True)


def _mean_shares(seeds: Sequence[Shares]) -> list[float | None]:
    columns = [[share for share in column if share is not None] for column in zip(*seeds, strict=True)]
    return [sum(column) / len(column) if column else None for column in columns]


def _lowest(shares: Shares) -> int:
    """The class that is recognised least."""
    return min((share, label) for label, share in enumerate(shares) if share is not None)[1]
