"""The standing of a method as a table: a row a cell, and in words how often it is ahead."""

from collections.abc import Sequence

from fedshot.report.standing import PLACE, Contender, Standing
from fedshot.study.sheet import Sheet
from fedshot.study.statistics import ABSENT, percent, points


def standing_sheet(found: Sequence[Standing], method: str) -> Sheet:
    """A row a cell; the highest mean is bold, and a column that says nothing is left out."""
    header = [*PLACE, "fafi", "best rival", "of", "its part", method, "difference"]
    reached = {"fafi": lambda s: s.plain, "best rival": lambda s: s.rival, "its part": lambda s: s.part}
    body, best = [], []
    for each in found:
        means = {header.index(name): c.reached.mean for name, of in reached.items() if (c := of(each))}
        means[len(header) - 2] = each.own.mean
        best.append(max(means, key=lambda place: means[place]))
        plain = percent(each.plain.reached) if each.plain else ABSENT
        own = percent(each.own) + (" †" if each.form else "")
        told = (plain, _named(each.rival), str(each.rivals), _named(each.part), own, points(each.difference))
        body.append((*each.place, *told))
    shown = [place for place, column in enumerate(zip(*body, strict=True)) if {*column} != {ABSENT}]
    lines = tuple(tuple(line[place] for place in shown) for line in body)
    bold = frozenset((number, shown.index(place)) for number, place in enumerate(best))
    return Sheet(tuple(header[place] for place in shown), lines, bold, _notes(found, method), ())


def _named(contender: Contender | None) -> str:
    return f"{contender.label}: {percent(contender.reached)}" if contender else ABSENT


def _notes(found: Sequence[Standing], method: str) -> tuple[str, ...]:
    cells = sum(each.own.mean > each.rival.reached.mean for each in found)
    ahead, seeds = sum(each.ahead for each in found), sum(each.own.n for each in found)
    forms = sorted({each.form for each in found if each.form})
    parted = [(each.own.mean, each.part.reached.mean) for each in found if each.part]
    told = [
        f"{method} is ahead of the best rival in {cells} of {len(found)} cells by the mean, and in {ahead} of {seeds} "
        "seeds. The best rival of a cell, a method by a rule, is chosen after the fact, on the same test images; *of* "
        "says among how many. Rivals are inductive and had clients with the same images.",
        "Difference: to the best rival, paired over seeds, in points [95 % interval].",
    ]
    if parted:
        better = sum(whole > part for whole, part in parted)
        told.append(
            f"Its part: the best other rule on the uploads of {method}, which it is ahead of in {better} of "
            f"{len(parted)} cells."
        )
    return (*told, *(f"† in the form {form}." for form in forms))
