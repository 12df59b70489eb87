"""How one method stands against all that ran beside it, cell by cell: its mean, that of the best rival, the difference.

A cell is data, clients, partition, epochs, encoder and the weights to start from. Rivals are the other methods, by any
inductive rule, whose clients held the same images at every seed of the cell. Other rules on the method's own uploads
are parts of it, and shown as such: a part that is better than the whole is a finding.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedshot.changed import changed_options, variant, words_of
from fedshot.errors import UserError, unknown
from fedshot.own_rule import options_of_rule
from fedshot.report.agreement import recipe_in_words
from fedshot.study.statistics import Paired, Summary, paired_difference, summarise

if TYPE_CHECKING:
    from fedshot.record import Record
    from fedshot.spec import Spec

BySeed = Mapping[int, "Record"]
PLACE = ("data", "clients", "division", "epochs", "encoder")
_OF_CELL = ("data", "clients", "recipe", "alpha", "classes_per_client", "partition_file", "epochs", "encoder")
_OF_FORM = ("method", "options", "files", "fusion", "seed", "evaluate_at")  # what makes a contender, and which seed
_OF_UPLOAD = ("upload_precision", "validation_most")  # what a method sends, and how much of it is measured


@dataclass(frozen=True)
class Contender:
    """A method by a rule, over the seeds of a cell."""

    label: str
    reached: Summary


@dataclass(frozen=True)
class Standing:
    """One cell: the method, the best of the others, and, if they ran, FAFI by its own rule and its own best part."""

    example: "Record"  # of the method
    own: Summary
    rival: Contender
    rivals: int  # of which this is the best
    plain: Contender | None
    part: Contender | None
    difference: Paired  # to the rival
    ahead: int  # seeds at which the method is ahead of it

    @property
    def place(self) -> tuple[str, ...]:
        """What PLACE names."""
        spec = self.example.spec
        start = ", pretrained" if spec.pretrained else ""
        division = recipe_in_words(self.example).removeprefix("dirichlet ")
        return spec.data, str(spec.clients), division, str(spec.epochs), f"{spec.encoder}{start}"

    @property
    def form(self) -> str:
        """Which form of the method ran; nothing for the plain one."""
        spec = self.example.spec
        return variant(spec.method, spec.options).removeprefix(spec.method).removeprefix(":")


def standings(records: Iterable["Record"], method: str) -> list[Standing]:
    """All cells in which the method ran by its own rule beside another, in the order of their names."""
    from fedshot.methods import canonical

    name = canonical(method)
    cells: dict[str, dict[str, dict[int, Record]]] = {}
    for record in sorted(records, key=_order):
        settings = record.spec.model_dump_json(exclude={"seed"})
        cells.setdefault(_cell(record), {}).setdefault(settings, {})[record.spec.seed] = record
    ran = [[*contenders.values()] for contenders in cells.values()]
    known = {_spec(runs).method for contenders in ran for runs in contenders}
    if name not in known:
        raise unknown("method among these runs", name, sorted(known))
    rule = _own_rule(name, [runs for contenders in ran for runs in contenders])
    found = [_standing(contenders, name, rule) for contenders in ran]
    if not (kept := [each for each in found if each is not None]):
        raise UserError(f"no run of {method} by its own rule lies beside one of another method on the same clients")
    return kept


def _order(record: "Record") -> tuple[Any, ...]:
    spec = record.spec
    return (
        spec.data,
        spec.recipe,
        spec.classes_per_client or 0,
        spec.clients,
        spec.alpha,
        spec.epochs,
        spec.encoder or "",
    )


def _cell(record: "Record") -> str:
    """What the runs of a cell share; of the division what its recipe read, and of files their content."""
    spec, read = record.spec, record.partition.get("parameters") or {}
    unread = {name for name in ("alpha", "classes_per_client") if name not in read}
    start = spec.files.get(spec.pretrained, "?") if spec.pretrained else None
    return json.dumps([*(getattr(spec, name) for name in _OF_CELL if name not in unread), start])


def _own_rule(method: str, found: Sequence[BySeed]) -> str:
    """Of a method in a file, which is not run here, the rule that it ran by most often."""
    from fedshot.methods import METHODS

    if method in METHODS:
        return METHODS[method]().fusion.name
    rules = Counter(record.spec.fusion for runs in found for record in runs.values() if record.spec.method == method)
    (rule, most), *others = rules.most_common()
    if any(count == most for _, count in others):
        told = " and ".join(str(name) for name in rules)
        raise UserError(f"{method} ran by {told} as often: choose its own rule with --where, as fusion={rule}")
    return rule or ""


def _standing(contenders: Sequence[BySeed], method: str, rule: str) -> Standing | None:
    forms = [runs for runs in contenders if (_spec(runs).method, _spec(runs).fusion) == (method, rule)]
    others = [runs for runs in contenders if _spec(runs).method != method]
    if not forms or not others:
        return None
    own = _plain(forms, method)
    own = {seed: record for seed, record in own.items() if any(seed in runs for runs in others)}
    rivals = [runs for runs in others if own and _comparable(runs, own)]
    if not rivals:
        return None
    beside = _best(rivals, own)
    alike = [runs for runs in rivals if _name(runs, own) == "fafi by features"]
    parts = [runs for runs in contenders if _is_part(runs, own) and _comparable(runs, own)]
    return Standing(
        example=next(iter(own.values())),
        own=_over(own, own),
        rival=Contender(_name(beside, own), _over(beside, own)),
        rivals=len(rivals),
        plain=_contender(alike, own, lambda runs: "fafi"),
        part=_contender(parts, own, lambda runs: _spec(runs).fusion or ""),
        difference=paired_difference(_accuracies(own), _accuracies({seed: beside[seed] for seed in own})),
        ahead=_ahead(own, beside),
    )


def _plain(forms: Sequence[BySeed], method: str) -> BySeed:
    """The form of the method with the fewest options changed. Which of several settings it is would be a choice."""
    fewest = min(len(_changes(runs)) for runs in forms)
    plain = [runs for runs in forms if len(_changes(runs)) == fewest]
    if len(plain) > 1:
        one, other = (_spec(runs).model_dump(mode="json", exclude={"seed"}) for runs in plain[:2])
        name = next(name for name in (*one, *other) if one.get(name) != other.get(name))
        told = f"{name} {one.get(name)} and {other.get(name)}"
        raise UserError(f"{method} ran in several forms on {_spec(plain[0]).data} ({told}): choose one with --where")
    return plain[0]


def _comparable(runs: BySeed, own: BySeed) -> bool:
    """Whether a contender saw one image at a time, and at each seed clients that held the same images."""
    return all(
        seed in runs
        and runs[seed].final.inductive
        and runs[seed].partition.get("fingerprint") == record.partition.get("fingerprint")
        for seed, record in own.items()
    )


def _is_part(runs: BySeed, own: BySeed) -> bool:
    """Whether another rule was applied to the uploads of the same clients."""
    spec, whole = _spec(runs), _spec(own)
    free = options_of_rule(whole.method)
    told = [{k: v for k, v in each.options.items() if k not in free} for each in (spec, whole)]
    return (
        spec.fusion != whole.fusion and spec.method == whole.method and told[0] == told[1] and not _apart(spec, whole)
    )


def _apart(spec: "Spec", own: "Spec") -> dict[str, Any]:
    """The settings that a run has and the method has not; what makes a cell or a contender is none of them."""
    free = {*_OF_CELL, *_OF_FORM, *_OF_UPLOAD, "pretrained"}
    names = (name for name in type(spec).model_fields if name not in free)
    return {name: getattr(spec, name) for name in names if getattr(spec, name) != getattr(own, name)}


def _best(contenders: Sequence[BySeed], own: BySeed) -> BySeed:
    """The highest mean; of equal ones that which the method is ahead of at the fewest seeds, then by name."""
    return min(contenders, key=lambda runs: (-_over(runs, own).mean, _ahead(own, runs), _name(runs, own)))


def _contender(contenders: Sequence[BySeed], own: BySeed, called: Callable[[BySeed], str]) -> Contender | None:
    if not contenders:
        return None
    best = _best(contenders, own)
    return Contender(called(best), _over(best, own))


def _ahead(own: BySeed, beside: BySeed) -> int:
    return sum(record.final.accuracy > beside[seed].final.accuracy for seed, record in own.items())


def _name(runs: BySeed, own: BySeed) -> str:
    """A method by a rule, with the settings that the method asked about did not have."""
    spec = _spec(runs)
    apart = [f"{name}={words_of(value)}" for name, value in _apart(spec, _spec(own)).items()]
    name = f"{variant(spec.method, spec.options)} by {spec.fusion}"
    return f"{name} ({', '.join(apart)})" if apart else name


def _spec(runs: BySeed) -> "Spec":
    return next(iter(runs.values())).spec


def _changes(runs: BySeed) -> Mapping[str, object]:
    spec = _spec(runs)
    return changed_options(spec.method, spec.options)


def _accuracies(runs: BySeed) -> dict[int, float]:
    return {seed: record.final.accuracy for seed, record in runs.items()}


def _over(runs: BySeed, seeds: Iterable[int]) -> Summary:
    return summarise([runs[seed].final.accuracy for seed in sorted(seeds)])
