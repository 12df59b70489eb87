"""How much an upload tells about who was in the client's training images: membership inference, measured.

Members are the client's training images, others those that it held back: same client, same classes. An attack that
cannot tell them apart has an advantage of 0, one that always can of 1. What these attacks find is a lower bound of what
leaks.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedshot.data.dataset import Labelled
from fedshot.errors import UserError
from fedshot.fusion import Member
from fedshot.local.statistics import chunks
from fedshot.models import Classifier
from fedshot.privacy.accountant import Spent, advantage_bound
from fedshot.privacy.attacks import ATTACKS, NEEDS_REFERENCE, Evidence, Seen
from fedshot.server import Reception
from fedshot.setting import Setting
from fedshot.store import RunFolder
from fedshot.task import Task

_CONFIDENCE = 0.95
_LOW = 0.01  # the false-positive rate at which an attack is judged where it is sure


class Advantage(BaseModel):
    """How well one attack tells members from others."""

    model_config = ConfigDict(frozen=True)

    attack: str
    section: str  # of the upload, that it reads
    advantage: float  # max over thresholds of TPR - FPR
    low: float  # 95 % interval of it
    high: float
    by_chance: float  # what scores that know nothing stay below in 95 of 100 cases, with as many images
    auc: float
    tpr_at_low_fpr: float  # share of members found where at most 1 % of the others are taken for members
    members: int
    others: int

    @property
    def significant(self) -> bool:
        return self.advantage > self.by_chance


class ClientAudit(BaseModel):
    """One client, or all of them together where `client` is None."""

    model_config = ConfigDict(frozen=True)

    client: int | None
    attacks: tuple[Advantage, ...]
    bound: float | None = None  # the largest advantage that the client's (ε, δ) allows


def audit(setting: Setting, folder: RunFolder, clients: Sequence[int] | None = None) -> list[ClientAudit]:
    """Attacks the uploads of a finished run; the last entry pools the clients where there are several.

    Args:
        clients: by number; all that sent an upload if not given.
    """
    if not setting.spec.validation:
        raise UserError("an audit compares training images with held-out ones: run with --validation 0.2")
    numbers = range(setting.spec.clients) if clients is None else clients
    found: list[ClientAudit] = []
    pooled: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in ATTACKS}
    for number in numbers:
        summary = folder.finished(number)
        if summary is None or summary.skipped or not folder.upload(number).exists():
            continue
        scores = scores_of(setting, Reception(setting, ("weights",)).admit(folder.upload(number), number))
        if scores:
            found.append(_report(number, scores, summary.spent))
            for name, pair in scores.items():
                pooled[name].append(pair)
    if not found:
        raise UserError("no client has an upload and held-out images: run with a larger --validation")
    if len(found) > 1:
        together = {name: _together(pairs) for name, pairs in pooled.items() if len(pairs) == len(found)}
        found.append(_report(None, together, None))
    return found


def scores_of(setting: Setting, member: Member) -> dict[str, tuple[Tensor, Tensor]]:
    """Scores of every attack that the upload allows: of the client's training images and of those that it held back.

    Empty for a client without held-out images.
    """
    client = setting.client(member.upload.header.client)
    if isinstance(client, str) or client.validation is None:
        return {}
    model, task = member.model, setting.task
    evidence = Evidence(
        sections={name: member.upload.section(name) for name in member.upload.sections if name != "weights"},
        reference=look(model, setting.data.test, task),
    )
    inside, outside = look(model, client.train, task), look(model, client.validation, task)
    allowed = {
        name: attack
        for name, (section, attack) in ATTACKS.items()
        if section in member.upload.sections and (len(setting.data.test) >= 2 or name not in NEEDS_REFERENCE)
    }
    return {name: (attack(inside, evidence), attack(outside, evidence)) for name, attack in allowed.items()}


@torch.no_grad()
def look(model: Classifier, data: Labelled, task: Task) -> Seen:
    """What a model makes of images, without augmentation."""
    none = next(model.parameters()).new_empty(0, model.width)
    features = torch.cat([none, *(model.features(task.prepare(part.images)).float() for part in chunks(data))])
    return Seen(data.images, data.labels, features, model.logits(features))


def advantage(name: str, section: str, members: Tensor, others: Tensor) -> Advantage:
    """How well scores tell members (N,) from others (M,)."""
    inside, outside = (np.sort(scores.cpu().double().numpy()) for scores in (members, others))
    found, margin = _largest_gap(inside, outside), _quantile(len(inside), len(outside), (1 - _CONFIDENCE) / 2)
    return Advantage(
        attack=name,
        section=section,
        advantage=found,
        low=max(0.0, found - margin),
        high=min(1.0, found + margin),
        by_chance=by_chance(len(inside), len(outside)),
        auc=auc(inside, outside),
        tpr_at_low_fpr=tpr_at(inside, outside, _LOW),
        members=len(inside),
        others=len(outside),
    )


def by_chance(members: int, others: int) -> float:
    """The largest advantage that scores which know nothing have in 95 of 100 cases, with as many images.

    >>> round(by_chance(100, 100), 3)
    0.173
    """
    return min(1.0, _quantile(members, others, 1 - _CONFIDENCE))


def _quantile(members: int, others: int, chance: float) -> float:
    """What the largest gap between two samples of one distribution exceeds by that chance, Smirnov 1939.

    sqrt( ln(1 / chance) / 2 · (N + M) / (N M) ). No curve of TPR - FPR lies further from the true one, on either side,
    but for twice that chance: so does no maximum of it, which is why the interval needs no resampling and no
    correction.
    """
    return math.sqrt(math.log(1 / chance) / 2 * (members + others) / (members * others))


def auc(inside: np.ndarray, outside: np.ndarray) -> float:
    """The chance that a member's score lies above another's, ties as a half; both sorted.

    >>> auc(np.array([1.0, 2.0]), np.array([0.0, 1.0]))
    0.875
    """
    below = np.searchsorted(outside, inside, side="left")
    up_to = np.searchsorted(outside, inside, side="right")
    return float((below + up_to).mean() / 2 / len(outside))


def tpr_at(inside: np.ndarray, outside: np.ndarray, rate: float) -> float:
    """The share of members above the lowest threshold that at most so large a share of the others exceed; both sorted.

    >>> tpr_at(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.0, 2.5]), rate=0.01)
    0.5
    """
    threshold = outside[len(outside) - 1 - math.floor(rate * len(outside))]
    return float((inside > threshold).mean())


def _largest_gap(inside: np.ndarray, outside: np.ndarray) -> float:
    """max over thresholds t of P(member > t) - P(other > t), at least 0; both sorted."""
    thresholds = np.concatenate([inside, outside])
    above = [1 - np.searchsorted(scores, thresholds, side="right") / len(scores) for scores in (inside, outside)]
    return max(0.0, float((above[0] - above[1]).max()))


def _together(pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    return torch.cat([inside for inside, _ in pairs]), torch.cat([outside for _, outside in pairs])


def _report(client: int | None, scores: Mapping[str, tuple[Tensor, Tensor]], spent: Spent | None) -> ClientAudit:
    attacks = tuple(advantage(name, ATTACKS[name][0], *pair) for name, pair in scores.items())
    bound = advantage_bound(spent.epsilon, spent.delta) if spent else None
    return ClientAudit(client=client, attacks=attacks, bound=bound)
