"""Training in stages: a first stage without classification that taught nothing, or that undoes the other (V6)."""

import math
from collections.abc import Sequence

from fedshot.explain.commands import again
from fedshot.explain.finding import Fact, Finding, Series
from fedshot.explain.run import Run, complete
from fedshot.record import Point

UNTAUGHT = 0.1  # of the contrast loss of the first epoch in stage 1; a fall of less is none
STAGE = "stage_one"  # 1 in epochs of stage 1, 0 in others

Stage = tuple[int, int]  # first and last epoch


def stage_taught_nothing(run: Run) -> list[Finding]:
    """Stage 1 ends no better than guessing, costs accuracy each time it comes back, or does not lower its own loss."""
    stages = stages_of(run)
    if not stages:
        return []
    found = _guessing(run, stages) or _undoing(run, stages) or _idle_loss(run, stages)
    if found is None:
        return []
    title, facts = found
    curve, options = run.record.curve, run.record.spec.options
    epochs = sum(last - first + 1 for first, last in stages)
    return [
        Finding(
            "stage_taught_nothing",
            "warning",
            title,
            (*facts, Fact("epochs of stage 1", epochs, f"of {run.record.spec.epochs}")),
            "Stage 1 minimises contrast and no classification: nothing ties what it learns to the scores that are "
            "fused, and its epochs are missing where classes are learned.",
            (
                "Compare with a loss that classifies from the first step on, on the same clients: "
                + again(run.record.spec, {"stages.first": 0} if "stages.first" in options else {"method": "fafi"}),
            ),
            (),
            (stages[0][0], stages[-1][1]),
            (Series("accuracy", tuple(p.epoch for p in curve), tuple(p.accuracy for p in curve)),)
            if len(curve) > 1
            else (),
        )
    ]


def stages_of(run: Run) -> list[Stage]:
    """The stretches of epochs that all clients spent in stage 1."""
    said: dict[int, bool] = {}
    for rows in run.rows.values():
        for row in complete(rows, STAGE):
            epoch = int(row["epoch"])
            said[epoch] = said.get(epoch, True) and row[STAGE] > 0.5
    found: list[Stage] = []
    for epoch in sorted(epoch for epoch, inside in said.items() if inside):
        if found and found[-1][1] == epoch - 1:
            found[-1] = (found[-1][0], epoch)
        else:
            found.append((epoch, epoch))
    return found


Evidence = tuple[str, tuple[Fact, ...]]


def _guessing(run: Run, stages: Sequence[Stage]) -> Evidence | None:
    """When stage 1 ends for the first time, accuracy is at the level of naming one class."""
    points, total = [p for p in run.record.curve if _inside(p, stages[:1])], sum(run.tests)
    if not points or not total:
        return None
    chance = max(run.tests) / total
    bound = chance + 2 * math.sqrt(chance * (1 - chance) / total)
    end = points[-1]
    if end.accuracy > bound:
        return None
    return (
        f"Stage 1 taught nothing that fuses: accuracy {end.accuracy:.1%} after epoch {end.epoch}, where naming one "
        f"class gives {chance:.1%}.",
        (
            Fact("accuracy after the first stage 1", end.accuracy, "%", f"≤ {bound:.1%}"),
            Fact("naming one class", chance, "%"),
        ),
    )


def _undoing(run: Run, stages: Sequence[Stage]) -> Evidence | None:
    """Each time that stage 1 comes back, accuracy is lower at its end than before it."""
    falls: list[tuple[Point, Point]] = []
    for first, last in stages:
        earlier = [p for p in run.record.curve if p.epoch < first and not _inside(p, stages)]
        within = [p for p in run.record.curve if first <= p.epoch <= last]
        if earlier and within:
            falls.append((earlier[-1], within[-1]))
    total = sum(run.tests)
    if not falls or not total or any(b.accuracy - a.accuracy < _noise(b, a, total) for b, a in falls):
        return None
    before, after = max(falls, key=lambda fall: fall[0].accuracy - fall[1].accuracy)
    return (
        f"Stage 1 undoes what stage 2 taught, each of the {len(falls)} times that it came back: accuracy fell from "
        f"{before.accuracy:.1%} after epoch {before.epoch} to {after.accuracy:.1%} after epoch {after.epoch}.",
        (
            Fact("largest fall", before.accuracy - after.accuracy, "%"),
            Fact("smallest fall", min(b.accuracy - a.accuracy for b, a in falls), "%", "beyond two deviations"),
            Fact("times", len(falls), "", "all"),
        ),
    )


def _idle_loss(run: Run, stages: Sequence[Stage]) -> Evidence | None:
    """No evaluation point lies in stage 1, and its contrast loss did not fall in any client."""
    if any(_inside(p, stages) for p in run.record.curve):
        return None
    ends: dict[int, tuple[float, float]] = {}
    for client, rows in run.rows.items():
        name = next((name for row in rows for name in row if name.startswith("loss_") and "contrast" in name), "")
        within = [row[name] for row in complete(rows, STAGE, name) if row[STAGE] > 0.5] if name else []
        if len(within) > 1 and within[0] > 0:
            ends[client] = (within[0], within[-1])
    if not ends or any(last < (1 - UNTAUGHT) * first for first, last in ends.values()):
        return None
    best = min(ends, key=lambda client: ends[client][1] / ends[client][0])
    first, last = ends[best]
    return (
        f"Stage 1 did not even lower its own loss: contrast {first:.3g} in its first epoch and {last:.3g} in its last "
        f"in client {best}, where it fell furthest; {len(ends)} of {len(run.rows)} clients.",
        (Fact("largest fall of contrast within stage 1", 1 - last / first, "%", f"< {UNTAUGHT:.0%}"),),
    )


def _inside(point: Point, stages: Sequence[Stage]) -> bool:
    return any(first <= point.epoch <= last for first, last in stages)


def _noise(one: Point, other: Point, total: int) -> float:
    """Two deviations of the difference of two shares, as if they were independent."""
    return 2 * math.sqrt(sum(p.accuracy * (1 - p.accuracy) for p in (one, other)) / total)
