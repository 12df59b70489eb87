"""What compared runs have in common, said in one line, and what they have not, said as warnings."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from fedshot.report.wording import number_of
from fedshot.study.statistics import ENOUGH_SEEDS

if TYPE_CHECKING:
    from fedshot.record import Record

MOST_NAMED = 5  # runs that share a value and are still named one by one

_FURTHER = (
    "norm",
    "draws",
    "normalisation",
    "momentum",
    "momentum_epochs",
    "warmup",
    "clip",
    "clip_scope",
    "upload_precision",
    "counts",
    "dp_noise",
)  # told if changed

PARTS: dict[str, Callable[["Record"], str]] = {
    "data": lambda record: record.spec.data,
    "number of clients": lambda record: number_of(record.spec.clients, "client"),
    "partition": lambda record: recipe_in_words(record),
    "local epochs": lambda record: number_of(record.spec.epochs, "local epoch"),
    "encoder": lambda record: record.spec.encoder or "default encoder",
    "weights to start from": lambda record: f"pretrained: {record.spec.pretrained}" if record.spec.pretrained else "",
    "batch size": lambda record: f"batches of {record.spec.batch_size}",
    "optimizer": lambda record: _optimizer(record),
    "public images": lambda record: f"public: {record.spec.public}" if record.spec.public else "",
    "validation share": lambda record: _held_back(record),
    "precision": lambda record: record.spec.precision or "",
    "further settings": lambda record: further_in_words(record),
}  # of a protocol: what each is called, and its value in words


def _held_back(record: "Record") -> str:
    share, most = record.spec.validation, record.spec.validation_most
    return f"{share:.0%} held back{f', {most} at most' if most else ''}" if share else ""


def _optimizer(record: "Record") -> str:
    """With its rate, schedule and decay."""
    spec = record.spec
    decay = f", weight decay {spec.weight_decay:g}" if spec.weight_decay else ""
    return f"{spec.optimizer} at {spec.lr:g}, {spec.schedule}{decay}"


def further_in_words(record: "Record", told: Collection[str] = ()) -> str:
    """Settings of the training and of what is sent that are rarely changed, where they were, but for those told."""
    fields = type(record.spec).model_fields
    values = {name: getattr(record.spec, name) for name in _FURTHER if name not in told}
    return ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in values.items() if v != fields[k].default)


def recipe_in_words(record: "Record") -> str:
    """The recipe of the partition with its parameters, which the seed and the number of clients are not."""
    parameters = record.partition.get("parameters", {}).items()
    told = [f"{name.replace('_', ' ')} {value:g}" for name, value in parameters if name not in ("seed", "clients")]
    return ", ".join([record.partition["recipe"], *told]).replace(", alpha", " α =", 1)


def seeds_in_words(records: Sequence["Record"]) -> str:
    """The seeds in order.

    Five are listed; more are counted.
    """
    seeds = sorted(record.spec.seed for record in records)
    if len(seeds) == 1:
        return f"1 seed ({seeds[0]})"
    return f"{len(seeds)} seeds ({', '.join(map(str, seeds)) if len(seeds) <= 5 else f'{seeds[0]} … {seeds[-1]}'})"


def setting_in_words(runs: Mapping[str, Sequence["Record"]]) -> str:
    """All that every run shares: data, clients, partition, epochs, encoder, optimiser, seeds."""
    shared = [values.pop() for values in (_values(runs, part) for part in PARTS) if len(values) == 1]
    seeds = {seeds_in_words(records) for records in runs.values()}
    return " · ".join(filter(None, [*shared, *(seeds if len(seeds) == 1 else ())]))


def warnings_about(runs: Mapping[str, Sequence["Record"]]) -> tuple[str, ...]:
    """Why the rows might not be comparable, one sentence each."""
    found = [
        f"Not all runs share the {part}: {_by_label(runs, part)}." for part in PARTS if len(_values(runs, part)) > 1
    ]
    fewest = min(len(records) for records in runs.values())
    if len({seeds_in_words(records) for records in runs.values()}) > 1:
        told = "; ".join(f"{label} {seeds_in_words(records)}" for label, records in runs.items())
        found.append(f"The seeds differ: {told}. Differences use the shared ones.")
    if fewest < ENOUGH_SEEDS:
        few = f"{number_of(fewest, 'seed')} {'is' if fewest == 1 else 'are'}"
        found.append(f"{few} too few for a claim: run at least {ENOUGH_SEEDS}.")
    found += [f"At seed {seed} the clients do not hold the same data in all methods." for seed in _unequal(runs)]
    overlap = max(record.partition.get("overlap", 0.0) for records in runs.values() for record in records)
    if overlap > 0:
        found.append(f"Clients overlap: up to {overlap:.0%} of the samples have several holders.")
    return tuple(found)


def _values(runs: Mapping[str, Sequence["Record"]], part: str) -> set[str]:
    return {PARTS[part](record) for records in runs.values() for record in records}


def _by_label(runs: Mapping[str, Sequence["Record"]], part: str) -> str:
    """Who has what; of many runs those that most have in common are the others."""
    told: dict[str, list[str]] = {}
    for label, records in runs.items():
        told.setdefault(", ".join(sorted({PARTS[part](record) or "none" for record in records})), []).append(label)
    usual = max(told, key=lambda value: len(told[value]))
    if len(told[usual]) > MOST_NAMED:
        del told[usual]
        told[usual] = ["the others"]  # the last to be named
    return "; ".join(f"{', '.join(labels)} {value}" for value, labels in told.items())


def _unequal(runs: Mapping[str, Sequence["Record"]]) -> list[int]:
    """Seeds at which two methods have different partitions."""
    held: dict[int, set[str]] = {}
    for record in (record for records in runs.values() for record in records):
        held.setdefault(record.spec.seed, set()).add(record.partition["fingerprint"])
    return sorted(seed for seed, fingerprints in held.items() if len(fingerprints) > 1)
