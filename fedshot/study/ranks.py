"""Methods over the cells of a study: average ranks, and differences to one of them cell by cell."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedshot.errors import UserError, unknown
from fedshot.record import bytes_per_client
from fedshot.study.grid import SETTINGS
from fedshot.study.pivot import HIGHER_IS_BETTER
from fedshot.study.results import Results, Row
from fedshot.study.statistics import Paired, Ranks, Summary, compare_ranks, holm, paired_difference, summarise

FEWEST_CELLS = 3
Key = tuple[Any, ...]
BySeed = dict[int, Row]


@dataclass(frozen=True)
class Difference:
    """A method against the reference in one cell; `corrected` is its p value in the family of all that were tested.

    `extra` is what a run of it costs above the reference, mean over the seeds that both have: seconds of all clients
    together, and bytes that a client sends and receives beside the initial model.
    """

    cell: Mapping[str, Any]
    variant: str
    summary: Summary
    personal: float | None  # mean personalised accuracy
    paired: Paired
    extra: Mapping[str, float]
    phases: int
    corrected: float | None = None


def cells_of(results: Results) -> tuple[tuple[str, ...], dict[Key, dict[str, BySeed]]]:
    """The settings that vary within a method, and for each combination of them the runs of each method by seed."""
    variants = dict.fromkeys(row["variant"] for row in results.rows)
    within = {
        axis
        for variant in variants
        for axis in results.varying([row for row in results.rows if row["variant"] == variant])
    }
    axes = tuple(name for name in SETTINGS if name in within)
    cells: dict[Key, dict[str, BySeed]] = {}
    for row in results.rows:
        of_variant = cells.setdefault(tuple(row[axis] for axis in axes), {}).setdefault(row["variant"], {})
        if row["seed"] in of_variant:
            raise UserError(f"{row['variant']} has two runs of seed {row['seed']} in one cell: choose with --where")
        of_variant[row["seed"]] = row
    return axes, cells


def rank(results: Results, value: str = "final.accuracy") -> Ranks:
    """Average ranks over the cells that all methods have, each by its mean over the seeds that all have there."""
    if value not in HIGHER_IS_BETTER:
        raise unknown("figure to rank by", value, HIGHER_IS_BETTER)
    results = results.with_number(value)
    _check_one_kind(results)
    _, cells = cells_of(results)
    variants = list(dict.fromkeys(row["variant"] for row in results.rows))
    figures: dict[str, list[float]] = {variant: [] for variant in variants}
    for found in cells.values():
        shared = set.intersection(*(set(found.get(variant, {})) for variant in variants))
        for variant in variants if shared else ():
            figures[variant].append(summarise([found[variant][seed][value] for seed in sorted(shared)]).mean)
    common = len(figures[variants[0]])
    if len(variants) < 2 or common < FEWEST_CELLS:
        raise UserError(
            f"ranks need at least 2 methods with runs of the same seeds in {FEWEST_CELLS} common cells or more "
            f"(combinations of data, alpha, clients and other settings); here are {len(variants)} methods "
            f"({', '.join(variants)}) and {common} common of {len(cells)} cells"
        )
    return compare_ranks(figures, HIGHER_IS_BETTER[value])


def differences(results: Results, reference: str, value: str = "final.accuracy") -> list[Difference]:
    """Paired differences to one method in every cell, over seeds with the same partition, with Holm-corrected p."""
    variants = list(dict.fromkeys(row["variant"] for row in results.rows))
    if reference not in variants:
        raise unknown("method among these results", reference, variants)
    results = results.with_number(value)
    _check_one_kind(results)
    axes, cells = cells_of(results)
    found: list[Difference] = []
    for key, by_variant in cells.items():
        held = by_variant.get(reference, {})
        for variant, runs in by_variant.items():
            same = [s for s in runs if s in held and _partition(runs[s]) == _partition(held[s])]
            if variant != reference and held:
                pair = paired_difference({s: runs[s][value] for s in same}, {s: held[s][value] for s in same})
                extra = {k: _mean([cost(runs[s]) - cost(held[s]) for s in same]) for k, cost in _COSTS.items()}
                every = summarise([row[value] for row in runs.values()])
                phases = max(row["final.phases"] for row in runs.values())
                cell = dict(zip(axes, key, strict=True))
                found.append(Difference(cell, variant, every, _personal(runs), pair, extra, phases))
    tested = [one for one in found if one.paired.p is not None]
    corrected = dict(zip(map(id, tested), holm([one.paired.p or 0.0 for one in tested]), strict=True))
    return [replace(one, corrected=corrected.get(id(one))) for one in found]


_COSTS: dict[str, Callable[[Row], float]] = {
    "client_seconds": lambda row: row["cost.client_seconds"],
    "client_bytes": lambda row: bytes_per_client(
        row["cost.upload_bytes"], row["cost.announced_bytes"], row["cost.job_bytes"], row["clients"]
    ),
}


def _personal(runs: BySeed) -> float | None:
    known = [row["final.personalised_accuracy"] for row in runs.values()]
    return None if None in known else _mean(known)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _check_one_kind(results: Results) -> None:
    """Transductive results answer another question than inductive ones."""
    if len({row["final.inductive"] for row in results.rows}) > 1:
        raise UserError("inductive and transductive results are not compared: add --where final.inductive=true")


def _partition(row: Row) -> Any:
    return row["partition.fingerprint"]


def rival_groups(ranks: Ranks) -> list[list[str]]:
    """Groups of neighbours whose best and worst rank are closer than the critical difference, none inside another.

    >>> rival_groups(Ranks({"a": 1.0, "b": 1.5, "c": 3.0, "d": 3.5}, 9, 0.0, 0.0, 0.0, 1.6))
    [['a', 'b'], ['b', 'c'], ['c', 'd']]
    """
    names = sorted(ranks.average, key=lambda name: ranks.average[name])
    groups: list[list[str]] = []
    for start, first in enumerate(names):
        near = [n for n in names[start:] if ranks.average[n] - ranks.average[first] < ranks.critical_difference]
        if len(near) > 1 and not (groups and set(near) <= set(groups[-1])):
            groups.append(near)
    return groups
