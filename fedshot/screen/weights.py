"""Tests of a client's weights against the shared start and the other clients."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from fedshot.fusion import Member
from fedshot.models import Classifier
from fedshot.screen.robust import distances, middle
from fedshot.screen.verdict import Check

# Floors were set on honest runs on the digits, 5 and 10 clients at α = 0.05 and 0.5 (docs/screen.md): a third to a half
# above the furthest honest client.
_NORM_FLOOR = math.log(3.0)
_COSINE_FLOOR = 0.3
_AWAY = -0.05  # honest encoders had a cosine of 0.01 or more, even where nobody shared a class
_HEAD_FLOOR = math.log(3.0)
_HEAD_LEAST = 0.25  # of its length: a head that hardly left the others is not odd, however little they differ

Found = Mapping[int, Check]
Words = Callable[[str, float, float], str]  # from a layer's name, how far it is off, and its value


def matrices(model: nn.Module) -> dict[str, Tensor]:
    """Filters and matrices by name: what a layer is. Vectors follow them, or normalise."""
    return {name: p.detach() for name, p in model.named_parameters() if p.ndim >= 2}


def layer_norms(members: Sequence[Member], start: Classifier) -> Found:
    """Scaled weights: log(|w| / |w_0|) of each layer against the other clients; the layer that is furthest off."""
    begun = matrices(start)
    rows = [torch.stack([(w.norm() / begun[n].norm()).log() for n, w in matrices(m.model).items()]) for m in members]
    away, median, limit = distances(torch.stack(rows).cpu(), _NORM_FLOOR)
    return _worst(members, list(begun), away.abs(), away, median, limit, "layer norms", _scale_words)


def layer_directions(members: Sequence[Member], start: Classifier) -> Found:
    """Random or foreign weights: the cosine of each layer with the shared start, against the other clients."""
    begun = matrices(start)
    rows = [torch.stack([_cosine(w, begun[n]) for n, w in matrices(m.model).items()]) for m in members]
    away, median, limit = distances(torch.stack(rows).cpu(), _COSINE_FLOOR)
    return _worst(members, list(begun), -away, away, median, limit, "layer directions", _direction_words)


def update_direction(members: Sequence[Member], start: Classifier) -> Found:
    """Flipped updates: the cosine of w - w_0 with the mean direction of the other clients' updates, in the encoder.

    Heads are left out: those of honest clients with different classes do move against each other.
    """
    begun = torch.cat([w.flatten() for w in matrices(start.encoder).values()])
    total = torch.zeros_like(begun, dtype=torch.float64)
    for member in members:  # one at a time: all updates together may not fit
        total += _update(member, begun)
    cosines = []
    for member in members:
        mine = _update(member, begun)
        cosines.append(_cosine(mine, total - mine))
    values = torch.stack(cosines).cpu()
    usual = float(middle(values))
    return {
        member.upload.header.client: Check(
            test="update direction",
            value=float(value),
            usual=usual,
            limit=_AWAY,
            suspicious=bool(value < _AWAY),
            words=f"its update has cosine {float(value):+.2f} with the others', {usual:+.2f} is usual",
        )
        for member, value in zip(members, values, strict=True)
    }


def prototypes(members: Sequence[Member]) -> Found | str:
    """Class rows of the head: how far from the median head, relative to its length, against the other clients."""
    heads = [_class_rows(member.model) for member in members]
    if any(len(head) == 0 for head in heads):
        return "the head has no rows of classes"
    rows = torch.stack(heads).cpu()  # (K, n)
    centre = middle(rows)
    values = ((rows - centre).norm(dim=1) / centre.norm().clamp(min=1e-12)).clamp(min=1e-12).log()
    away, median, limit = distances(values, _HEAD_FLOOR)
    most = max(float((median + limit).exp()), _HEAD_LEAST)
    return {
        member.upload.header.client: Check(
            test="prototypes",
            value=float(value.exp()),
            usual=float(median.exp()),
            limit=most,
            suspicious=float(value.exp()) > most,
            words=f"its head is {float(off.exp()):.1f} times as far from the median head as usual",
        )
        for member, value, off in zip(members, values, away, strict=True)
    }


def _class_rows(model: Classifier) -> Tensor:
    named = getattr(model.head, "class_rows", ())
    rows = [entry.flatten() for name, entry in model.head.state_dict().items() if name in named]
    return torch.cat(rows) if rows else torch.empty(0)


def _update(member: Member, begun: Tensor) -> Tensor:
    """The unit vector from the shared start to the member's weights, in double."""
    moved = torch.cat([w.flatten() for w in matrices(member.model.encoder).values()]).double() - begun.double()
    return moved / moved.norm().clamp(min=1e-12)


def _cosine(one: Tensor, other: Tensor) -> Tensor:
    return torch.cosine_similarity(one.flatten().double(), other.flatten().double(), dim=0)


def _worst(
    members: Sequence[Member],
    names: Sequence[str],
    badness: Tensor,  # (K, L), how far on the bad side
    away: Tensor,  # (K, L)
    median: Tensor,  # (L,)
    limit: Tensor,  # (L,)
    test: str,
    words: Words,
) -> Found:
    """Of every client the layer that exceeds its limit most."""
    found = {}
    for k, member in enumerate(members):
        layer = int((badness[k] / limit).argmax())
        found[member.upload.header.client] = Check(
            test=test,
            value=float(away[k, layer] + median[layer]),
            usual=float(median[layer]),
            limit=float(limit[layer]),
            suspicious=bool(badness[k, layer] > limit[layer]),
            words=words(names[layer], float(away[k, layer]), float(away[k, layer] + median[layer])),
        )
    return found


def _scale_words(layer: str, away: float, value: float) -> str:
    return f"{layer} is {math.exp(away):.2g} times as long as usual"


def _direction_words(layer: str, away: float, value: float) -> str:
    return f"{layer} has cosine {value:+.2f} with the shared start, {value - away:+.2f} is usual"
