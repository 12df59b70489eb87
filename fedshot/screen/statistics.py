"""Tests of what a client says about its data: moments, class means, and whether its labels are those of the others."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fedshot.fusion import Member
from fedshot.local.pixels import FEWEST
from fedshot.screen.robust import at_most, distances
from fedshot.screen.verdict import Check
from fedshot.screen.weights import Found
from fedshot.task import Task

_MOMENT_FLOOR = math.log(3.0)
_UNLIKELY = 0.005  # the chance, for a client like the others, below which so few fitting classes are suspicious


def moments(members: Sequence[Member]) -> Found | str:
    """The lengths of mean and deviation of features, against the other clients, on a log scale.

    A small deviation is no sign: clients of one class have it.
    """
    if lacking := [m for m in members if "moments" not in m.upload.sections]:
        return f"client {lacking[0].upload.header.client} sent no moments"
    sections = [m.upload.section("moments") for m in members]
    lengths = torch.tensor(
        [[float(s[name].norm().clamp(min=1e-12).log()) for name in ("mean", "std")] for s in sections]
    )
    away, median, limit = distances(lengths, _MOMENT_FLOOR)
    badness = torch.stack([away[:, 0].abs(), away[:, 1]], dim=1) / limit
    found = {}
    for k, member in enumerate(members):
        which = int(badness[k].argmax())
        off = float(away[k, which].exp())
        found[member.upload.header.client] = Check(
            test="moments",
            value=float(lengths[k, which].exp()),
            usual=float(median[which].exp()),
            limit=float(limit[which].exp()),
            suspicious=bool(badness[k, which] > 1),
            words=f"the {('mean', 'deviation')[which]} of its features is {off:.2g} times as long as usual",
        )
    return found


@torch.no_grad()
def own_labels(members: Sequence[Member]) -> Found | str:
    """Does a head fit the class means that came with it? Of how many of the client's classes it does.

    A head that was swapped or turned after training does not. It fits in c if, of the mean features of all classes of
    the client, that of c gets the highest score for c.
    """
    fits: dict[int, Fit] = {}
    for member in members:
        held = _held(member)
        if "class_means" in member.upload.sections and len(held) >= 2:
            model = member.model
            means = member.upload.section("class_means")["means"].to(next(model.parameters()))
            fits[member.upload.header.client] = _fit(model.logits(means[held])[:, held])
    if len(fits) < 2:
        return "it needs the section class_means and exact counts of two clients with two classes of five images each"
    set_aside, left = _set_aside(list(fits), lambda among: {k: fits[k] for k in among})
    return _judged("own labels", set_aside, left, "its head fits {right} of its {total} class means")


@torch.no_grad()
def shared_labels(members: Sequence[Member], task: Task) -> Found | str:
    """Does a client call by the same names what the others call so? Label flips, and models that know nothing.

    Every class c that the client holds and that others have described is shown to its model as their mean picture; or
    as the mean over public images of the class. The client fits in c if, of all pictures shown, that of c gets the
    highest score for c: compared between pictures and not between classes, so that a client of unequal classes is not
    suspected. Who is suspected by that is set aside, its pictures too, and the others are looked at again.
    """
    labelled = task.public is not None and task.public.same_labels
    able = [m for m in members if _held(m) and (labelled or "class_pixels" in m.upload.sections)]
    if len(able) < 2:
        return "it needs the section class_pixels and exact counts of two clients, or public images with labels"
    scores = {m.upload.header.client: _scores(m, able, task, labelled) for m in able}
    by_number = {m.upload.header.client: m for m in able}

    def fits_among(numbers: Sequence[int]) -> dict[int, Fit]:
        left = {k: by_number[k] for k in numbers}
        return {k: fit for k in left if (fit := _shared_fit(left[k], left, scores[k], labelled)) is not None}

    set_aside, left = _set_aside(list(by_number), fits_among)
    if not set_aside and not left:
        return "no two clients share two classes of five images or more"
    return _judged("shared labels", set_aside, left, "{right} of {total} shared classes have the others' names")


Scores = Mapping[tuple[int, int], Tensor]  # what a model says, (C,), about the picture of a class by a client


def _scores(member: Member, donors: Sequence[Member], task: Task, labelled: bool) -> Scores:
    model = member.model
    device = next(model.parameters()).device
    if labelled and task.public is not None:
        said = torch.cat([model(task.prepare(part)) for part in task.public.data.images.to(device).split(512)])
        labels = task.public.data.labels.to(device)
        there = [c for c in range(task.classes) if (labels == c).any()]
        return {(-1, c): said[labels == c].mean(0).cpu() for c in there}
    found = {}
    for donor in donors:
        described = _held(donor)
        if donor is member or not described:
            continue
        pictures = donor.upload.section("class_pixels")["mean"][described].to(device)
        images = functional.interpolate(pictures, task.shape[1:], mode="bilinear", align_corners=False)
        for c, said in zip(described, model(task.normalise(images)).cpu(), strict=True):
            found[donor.upload.header.client, c] = said
    return found


def _shared_fit(member: Member, left: Mapping[int, Member], scores: Scores, labelled: bool) -> "Fit | None":
    """How many of the shared classes fit; None where fewer than two are shared."""
    shown: dict[int, Tensor] = {}
    for c in _held(member):
        donors = [k for k in ([-1] if labelled else left) if (k, c) in scores]
        if donors:
            weights = torch.tensor([1.0 if k < 0 else float(left[k].upload.header.class_counts[c]) for k in donors])
            shown[c] = (torch.stack([scores[k, c] for k in donors]) * weights[:, None]).sum(0) / weights.sum()
    return _fit(torch.stack(list(shown.values()))[:, list(shown)]) if len(shown) >= 2 else None


def _held(member: Member) -> list[int]:
    """The classes of which a client holds enough images to be described; none where it does not tell."""
    header = member.upload.header
    return [c for c, n in enumerate(header.class_counts) if n >= FEWEST] if header.counts == "exact" else []


@dataclass(frozen=True)
class Fit:
    """Of so many classes so many fit."""

    right: int
    total: int


def _fit(scores: Tensor) -> Fit:
    """How many classes have the highest score at their own example, from scores (examples, classes).

    >>> _fit(torch.tensor([[9.0, 2.0], [8.0, 3.0]]))
    Fit(right=2, total=2)
    """
    return Fit(int((scores.argmax(0).cpu() == torch.arange(len(scores))).sum()), len(scores))


def _rate(fits: Iterable[Fit]) -> float:
    """The share that fits over several clients, as if one more had fitted and one more had not."""
    known = list(fits)
    return (sum(fit.right for fit in known) + 1) / (sum(fit.total for fit in known) + 2)


def _set_aside(
    clients: list[int], fits_among: Callable[[Sequence[int]], dict[int, Fit]]
) -> tuple[dict[int, Fit], dict[int, Fit]]:
    """The fits of clients that do not fit the others, one after the other, and those of the clients that are left.

    A client is odd if its fit is unlikely at the rate at which the others fit each other when it is not there: whom a
    liar contradicts is not suspected for that.
    """
    left, odd_ones = list(clients), dict[int, Fit]()
    while True:
        fits = fits_among(left)
        chances = {
            k: at_most(fit.right, fit.total, _rate(fits_among([j for j in left if j != k]).values()))
            for k, fit in fits.items()
            if fit.right < fit.total
        }
        lowest = min(chances, key=lambda k: chances[k], default=None)
        if lowest is None or chances[lowest] >= _UNLIKELY:
            return odd_ones, fits
        odd_ones[lowest] = fits[lowest]
        left.remove(lowest)


def _judged(test: str, set_aside: Mapping[int, Fit], left: Mapping[int, Fit], words: str) -> Found:
    """Those that were set aside against those that were left."""
    usual = _rate(left.values())
    return {
        client: Check(
            test=test,
            value=fit.right / fit.total,
            usual=usual,
            limit=max(
                (r / fit.total for r in range(fit.total) if at_most(r, fit.total, usual) < _UNLIKELY), default=-1.0
            ),
            suspicious=client in set_aside,
            words=words.format(right=fit.right, total=fit.total) + f", {usual:.0%} are usual",
        )
        for client, fit in sorted({**left, **set_aside}.items())
    }
