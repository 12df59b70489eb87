"""One model from K by averaging parameters, McMahan et al. 2017 (arXiv:1602.05629), done once."""

import copy
from collections.abc import Mapping, Sequence

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
        states = [m.model.state_dict() for m in members]
        return single(members[0].model, average_states(states, samples(members)))

    return Fusion("average", fuse)


def single(like: Classifier, state: Mapping[str, Tensor]) -> Predictor:
    """A predictor of one model with the given state."""
    model = copy.deepcopy(like)
    model.load_state_dict(dict(state))
    return Predictor((model.eval(),), first_logits)


def first_logits(outputs: Outputs) -> Tensor:
    return outputs.logits[0]


def average_states(states: Sequence[Mapping[str, Tensor]], weights: Tensor) -> dict[str, Tensor]:
    """sum_k w_k state_k for every floating entry, buffers of BatchNorm included; integers are counters: the largest.

    >>> first = {"w": torch.tensor([0.0]), "seen": torch.tensor(3)}
    >>> second = {"w": torch.tensor([4.0]), "seen": torch.tensor(5)}
    >>> average_states([first, second], torch.tensor([0.25, 0.75]))
    {'w': tensor([3.]), 'seen': tensor(5)}
    """
    mean: dict[str, Tensor] = {}
    for name, first in states[0].items():
        stack = torch.stack([state[name] for state in states])
        if first.is_floating_point():
            shape = (-1, *[1] * first.ndim)
            mean[name] = (stack * weights.to(stack).view(shape)).sum(0)
        else:
            mean[name] = stack.amax(0)
    return mean


def mean_head(members: Sequence[Member], by: PrototypeWeights) -> nn.Module:
    """The clients' heads averaged: FAFI's mean prototypes when `by` is uniform.

    Weights by class count apply row by row, so that a client which never saw a class has no say in its prototype.
    """
    heads = [m.model.head for m in members]
    check_head(members[0].model, by)
    weights = PROTOTYPE_WEIGHTS[by](members)
    head = copy.deepcopy(heads[0])
    states = [h.state_dict() for h in heads]
    if weights.ndim == 1:
        head.load_state_dict(average_states(states, weights))
        return head
    mean = {}
    for name in states[0]:
        stack = torch.stack([state[name] for state in states])  # (K, C, …)
        mean[name] = (stack * weights.to(stack).view(*weights.shape, *[1] * (stack.ndim - 2))).sum(0)
    head.load_state_dict(mean)
    return head


def check_head(model: Classifier, by: PrototypeWeights) -> None:
    """Refuses a head that cannot be averaged class by class."""
    if by == "class_counts" and set(getattr(model.head, "class_rows", ())) != set(model.head.state_dict()):
        raise UserError("prototypes weighted by class counts need a head with one row for each class")
