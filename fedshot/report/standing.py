"""How one method stands against all that ran beside it, cell by cell: its mean, that of the best rival, the difference.

A cell is data, clients, partition, epochs, encoder and the weights to start from. Rivals are the other methods, by any
rule. Other rules on the method's own uploads are parts of it, and shown as such: a part that is better than the whole
is a finding.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from fedshot.changed import changed_options, variant
from fedshot.errors import UserError
from fedshot.report.agreement import recipe_in_words
from fedshot.report.gather import TASK
from fedshot.report.style import COLOURS, INK
from fedshot.study.sheet import Sheet
from fedshot.study.statistics import ABSENT, Paired, Summary, paired_difference, percent, points, summarise

if TYPE_CHECKING:
    from fedshot.record import Record
    from fedshot.spec import Spec

BySeed = Mapping[int, "Record"]
_CELL = (*TASK, "epochs", "encoder", "pretrained")
_PLACE = ("data", "clients", "division", "epochs", "encoder")
_LEFT, _WIDE, _ROW, _TOP = 330, 780, 17, 44  # of the picture, in pixels


@dataclass(frozen=True)
class Contender:
    """A method by a rule, over the seeds at which the method that is asked about ran."""

    label: str
    reached: Summary


@dataclass(frozen=True)
class Standing:
    """One cell: the method, the best of the others, and, if they ran, FAFI by its own rule and its own best part."""

    example: "Record"  # of the method
    own: Summary
    rival: Contender
    plain: Contender | None
    part: Contender | None
    difference: Paired  # to the rival
    ahead: int  # seeds at which the method is ahead of it

    @property
    def place(self) -> tuple[str, ...]:
        """What _PLACE names."""
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
    cells: dict[str, dict[str, dict[int, Record]]] = {}
    for record in sorted(records, key=lambda r: (r.spec.data, r.spec.recipe, r.spec.clients, r.spec.alpha)):
        cell = json.dumps([getattr(record.spec, name) for name in _CELL])
        settings = record.spec.model_dump_json(exclude={"seed"})
        cells.setdefault(cell, {}).setdefault(settings, {})[record.spec.seed] = record
    ran = [[*contenders.values()] for contenders in cells.values()]
    rule = _own_rule(method, [runs for contenders in ran for runs in contenders])
    found = [_standing(contenders, method, rule) for contenders in ran]
    if not (kept := [each for each in found if each is not None]):
        raise UserError(f"no run of {method} by its own rule lies beside one of another method with the same seeds")
    return kept


def _own_rule(method: str, found: Iterable[BySeed]) -> str | None:
    """Of a method in a file, which is not run here, the rule that it ran by most often."""
    from fedshot.methods import METHODS

    if method in METHODS:
        return METHODS[method]().fusion.name
    rules = Counter(record.spec.fusion for runs in found for record in runs.values() if record.spec.method == method)
    return rules.most_common(1)[0][0] if rules else None


def _standing(contenders: Sequence[BySeed], method: str, rule: str | None) -> Standing | None:
    forms = [runs for runs in contenders if (_spec(runs).method, _spec(runs).fusion) == (method, rule)]
    parts = [runs for runs in contenders if _spec(runs).method == method and _spec(runs).fusion != rule]
    rivals = [runs for runs in contenders if _spec(runs).method != method]
    if not forms or not rivals:
        return None
    own = _plain(forms, method)
    beside = _best(rivals, own)
    if beside is None:
        return None
    plain = _best([runs for runs in rivals if _name(runs) == "fafi by features"], own)
    part = _best(parts, own)
    return Standing(
        example=next(iter(own.values())),
        own=_over(own, own),
        rival=Contender(_name(beside), _over(beside, own)),
        plain=Contender("", _over(plain, own)) if plain else None,
        part=Contender(_spec(part).fusion or "", _over(part, own)) if part else None,
        difference=paired_difference(_accuracies(own), _accuracies(beside)),
        ahead=sum(record.final.accuracy > beside[seed].final.accuracy for seed, record in own.items()),
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


def _best(contenders: Iterable[BySeed], seeds: BySeed) -> BySeed | None:
    """The highest mean over some seeds, of those that ran at all of them."""
    able = [runs for runs in contenders if seeds.keys() <= runs.keys()]
    return max(able, key=lambda runs: _over(runs, seeds).mean, default=None)


def _name(runs: BySeed) -> str:
    spec = _spec(runs)
    return f"{variant(spec.method, spec.options)} by {spec.fusion}"


def _spec(runs: BySeed) -> "Spec":
    return next(iter(runs.values())).spec


def _changes(runs: BySeed) -> Mapping[str, object]:
    spec = _spec(runs)
    return changed_options(spec.method, spec.options)


def _accuracies(runs: BySeed) -> dict[int, float]:
    return {seed: record.final.accuracy for seed, record in runs.items()}


def _over(runs: BySeed, seeds: Iterable[int]) -> Summary:
    return summarise([runs[seed].final.accuracy for seed in sorted(seeds)])


def standing_sheet(found: Sequence[Standing], method: str) -> Sheet:
    """A row a cell; the highest mean is bold, and a column that says nothing is left out."""
    header = [
        "data",
        "clients",
        "division",
        "epochs",
        "encoder",
        "fafi",
        "best rival",
        "its part",
        method,
        "difference",
    ]
    body, best = [], []
    for each in found:
        values = (each.plain, each.rival, each.part, Contender("", each.own))
        means = [contender.reached.mean if contender else -1.0 for contender in values]
        best.append(header[len(each.place) + means.index(max(means))])
        own = percent(each.own) + (" †" if each.form else "")
        plain = percent(each.plain.reached) if each.plain else ABSENT
        body.append((*each.place, plain, _named(each.rival), _named(each.part), own, points(each.difference)))
    told = [name for name, column in zip(header, zip(*body, strict=True), strict=True) if {*column} != {ABSENT}]
    shown = [tuple(cell for name, cell in zip(header, line, strict=True) if name in told) for line in body]
    bold = frozenset((number, told.index(name)) for number, name in enumerate(best))
    return Sheet(tuple(told), tuple(shown), bold, _notes(found, method), ())


def _named(contender: Contender | None) -> str:
    return f"{contender.label}: {percent(contender.reached)}" if contender else ABSENT


def _notes(found: Sequence[Standing], method: str) -> tuple[str, ...]:
    cells = sum(each.own.mean > each.rival.reached.mean for each in found)
    ahead, seeds = sum(each.ahead for each in found), sum(each.own.n for each in found)
    forms = sorted({each.form for each in found if each.form})
    parted = [each for each in found if each.part]
    better = sum(each.own.mean > each.part.reached.mean for each in parted if each.part)
    told = [
        f"{method} is ahead of the best rival in {cells} of {len(found)} cells by the mean, and in {ahead} of {seeds} "
        "seeds. The best rival of a cell, a method by a rule, is chosen after the fact, on the same test images.",
        "Difference: to the best rival, paired over seeds, in points [95 % interval].",
    ]
    if parted:
        told.append(
            f"Its part: the best other rule on the uploads of {method}, which it is ahead of in {better} of "
            f"{len(parted)} cells."
        )
    return (*told, *(f"† in the form {form}." for form in forms))


def standing_picture(found: Sequence[Standing], method: str) -> str:
    """The same as SVG: a line a cell from 0 to 100 %, with FAFI, the best rival, the best part and the method on it."""
    marks = ((INK, "fafi"), (COLOURS[1], "best rival"), (COLOURS[2], "its part"), (COLOURS[0], method))
    height = _TOP + _ROW * len(found) + 8
    title = f"Accuracy of FAFI, of the best rival and of {escape(method)}, cell by cell"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {height}" width="{_WIDE}" height="{height}" '
        f'font-family="DejaVu Sans, sans-serif" font-size="11" fill="{INK}" role="img">',
        f"<title>{title}</title>",
    ]
    for place, (colour, name) in enumerate(marks):
        x = _LEFT + 110 * place
        parts.append(f'<circle cx="{x}" cy="10" r="4.5" fill="{colour}"/>')
        parts.append(f'<text x="{x + 9}" y="14">{escape(name)}</text>')
    for share in range(0, 101, 20):
        line = _across(share / 100)
        parts.append(f'<text x="{line}" y="{_TOP - 10}" text-anchor="middle">{share} %</text>')
        parts.append(f'<path d="M{line} {_TOP - 5}V{height - 6}" stroke="{INK}" stroke-opacity=".22"/>')
    for number, each in enumerate(found):
        parts += _line(each, _TOP + _ROW * number + 6, [colour for colour, _ in marks])
    return "\n".join([*parts, "</svg>", ""])


def _line(each: Standing, y: int, colours: Sequence[str]) -> list[str]:
    """The line of a cell at a height of the picture."""
    data, clients, division, _, encoder = each.place
    label = escape(f"{data} · K={clients} · {division} · {encoder}")
    values = (each.plain, each.rival, each.part, Contender("", each.own))
    at = [(_across(value.reached.mean), colour) for value, colour in zip(values, colours, strict=True) if value]
    ends = [x for x, _ in at]
    return [
        f'<text x="{_LEFT - 12}" y="{y + 4}" text-anchor="end">{label}</text>',
        f'<path d="M{min(ends)} {y}H{max(ends)}" stroke="{INK}" stroke-opacity=".5"/>',
        *(f'<circle cx="{x}" cy="{y}" r="4.5" fill="{colour}"/>' for x, colour in at),
    ]


def _across(share: float) -> float:
    """Where a share lies in the picture, in pixels from the left."""
    return round(_LEFT + share * (_WIDE - _LEFT - 24), 1)
