"""Two values that differ in the content of tensors alone, and those that do not."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedshot.local.counterparts import counterparts
from fedshot.local.weighting import DecoupledUncertainty, Scheduled


@dataclass(frozen=True)
class Pair:
    first: Any
    second: Any


def closure(*held: Any) -> Callable[[], Any]:
    return lambda: held


def other_closure(*held: Any) -> Callable[[], Any]:
    return lambda: len(held)


ONE, TWO = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])


@pytest.mark.parametrize(
    "wrap",
    [
        lambda t: t,
        lambda t: (1, "x", t),
        lambda t: {"a": [t]},
        lambda t: Pair(None, t),
        closure,
        lambda t: closure(closure(t), 3.0),
        lambda t: functools.partial(torch.add, t, alpha=2),
        lambda t: Pair({"x", "y"}, t),
        lambda t: Pair(t, closure(t)),
    ],
)
def test_what_differs_in_a_tensor_alone_has_counterparts(wrap: Callable[[Tensor], Any]) -> None:
    assert counterparts(wrap(ONE), wrap(TWO)) == [(ONE, TWO)]
    assert counterparts(wrap(ONE), wrap(ONE)) == []  # the same tensor needs no copy


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (1, 2),
        (1, 1.0),
        ((1,), (1, 2)),
        ({"a": 1}, {"b": 1}),
        (ONE, ONE.double()),
        (ONE, torch.zeros(3)),
        (ONE, ONE.clone().requires_grad_()),
        (closure(5), closure(6)),
        (closure(5), other_closure(5)),
        (Scheduled(1.0, "linear"), Scheduled(1.0, "cosine")),
        (Pair(ONE, ONE), Pair(TWO, ONE.clone())),  # one tensor in two places cannot become two
        (object(), object()),
        (torch.Generator(), torch.Generator()),
        (closure(iter([1])), closure(iter([1]))),
    ],
)
def test_any_other_difference_is_one(ours: Any, theirs: Any) -> None:
    assert counterparts(ours, theirs) is None


def test_modules_are_compared_part_by_part() -> None:
    pairs = counterparts(DecoupledUncertainty(2.0), DecoupledUncertainty(5.0))
    assert pairs is not None and len(pairs) == 2  # u, and v which starts at the same place
    assert all(isinstance(ours, nn.Parameter) and ours is not theirs for ours, theirs in pairs)
    assert counterparts(nn.Linear(2, 3), nn.Linear(2, 4)) is None
