"""One model from K by averaging parameters, McMahan et al. 2017 (arXiv:1602.05629), done once."""

import copy
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from fedshot.errors import UserError
from fedshot.fusion.rule import Fusion, Member, Outputs, Predictor
from fedshot.fusion.weights import PROTOTYPE_WEIGHTS, PrototypeWeights, samples
from fedshot.models import Classifier
from fedshot.task import Task


def average() -> Fusion:
    """One model: parameters and BatchNorm statistics averaged, weighted by samples."""

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        states = (m.model.state_dict() for m in members)
        return single(members[0].model, average_states(states, samples(members)))

    return Fusion("average", fuse)


def single(like: Classifier, state: Mapping[str, Tensor]) -> Predictor:
    """A predictor of one model with the given state."""
    model = copy.deepcopy(like)
    model.load_state_dict(dict(state))
    return Predictor((model.eval(),), first_logits)


def first_logits(outputs: Outputs) -> Tensor:
    return outputs.logits[0]


def average_states(states: Iterable[Mapping[str, Tensor]], weights: Tensor) -> dict[str, Tensor]:
    """sum_k w_k state_k for every floating entry, buffers of BatchNorm included; integers are counters: the largest.

    The states are read one after the other and added up in double precision.

    Args:
        weights: (K,); or (K, C) for states whose entries have the class as their first axis.

    >>> first = {"w": torch.tensor([0.0]), "seen": torch.tensor(3)}
    >>> second = {"w": torch.tensor([4.0]), "seen": torch.tensor(5)}
    >>> average_states([first, second], torch.tensor([0.25, 0.75]))
    {'w': tensor([3.]), 'seen': tensor(5)}
    """
    total: dict[str, Tensor] = {}
    types: dict[str, torch.dtype] = {}
    for state, weight in zip(states, weights.double(), strict=True):
        for name, entry in state.items():
            types[name] = entry.dtype
            if entry.is_floating_point():
                by_row = weight.to(entry.device).view((*weight.shape, *[1] * (entry.ndim - weight.ndim)))
                part = entry.double() * by_row
                total[name] = total[name].add_(part) if name in total else part
            else:
                total[name] = torch.maximum(total.get(name, entry), entry)
    return {name: entry.to(types[name]) for name, entry in total.items()}


def mean_head(members: Sequence[Member], by: PrototypeWeights) -> nn.Module:
    """The clients' heads averaged: FAFI's mean prototypes when `by` is uniform.

    Weights by class count apply row by row, so that a client which never saw a class has no say in its prototype.
    """
    return weighted_head(members, PROTOTYPE_WEIGHTS[by](members))


def weighted_head(members: Sequence[Member], weights: Tensor) -> nn.Module:
    """The clients' heads averaged by weights (K,), or row by row by weights (K, C)."""
    if weights.ndim == 2:
        check_class_rows(members[0].model)
    head = copy.deepcopy(members[0].model.answering_head())
    states = (m.model.answering_head().state_dict() for m in members)
    head.load_state_dict(average_states(states, weights))
    return head


def check_head(model: Classifier, by: PrototypeWeights) -> None:
    """Refuses a head that cannot be averaged by these weights."""
    if by == "class_counts":
        check_class_rows(model)


def check_class_rows(model: Classifier) -> None:
    """Refuses a head that has anything but one row for each class."""
    if set(getattr(model.head, "class_rows", ())) != set(model.head.state_dict()):
        raise UserError("prototypes weighted class by class need a head with one row for each class")
