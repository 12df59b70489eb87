"""Factors that move with progress: how a learning rate or a lambda changes over the whole local run.

Progress is a 0-dim tensor in [0, 1) that moves per step, so a captured step replays with new values.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

ScheduleName = Literal["constant", "linear", "cosine", "step"]


def constant(progress: Tensor) -> Tensor:
    """1 at every step.

    >>> constant(torch.tensor(0.3))
    tensor(1.)
    """
    return torch.ones_like(progress)


def linear(progress: Tensor) -> Tensor:
    """1 - p, from 1 to 0.

    >>> linear(torch.tensor(0.25))
    tensor(0.7500)
    """
    return 1 - progress


def cosine(progress: Tensor) -> Tensor:
    """(1 + cos(pi p)) / 2, from 1 to 0.

    >>> cosine(torch.tensor(0.5))
    tensor(0.5000)
    """
    return (1 + torch.cos(math.pi * progress)) / 2


def step(progress: Tensor) -> Tensor:
    """1, then 0.1 from half of the run on, then 0.01 from three quarters on.

    >>> step(torch.tensor(0.6))
    tensor(0.1000)
    """
    return torch.ones_like(progress).masked_fill(progress >= 0.5, 0.1).masked_fill(progress >= 0.75, 0.01)


SCHEDULES: dict[str, Callable[[Tensor], Tensor]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "step": step,
}


def learning_rate(progress: Tensor, schedule: str, warmup: float) -> Tensor:
    """The factor on the learning rate: linear from 0 over the first `warmup` share of the run, then the schedule.

    The schedule runs over what is left after the warm-up.

    >>> learning_rate(torch.tensor(0.05), "cosine", warmup=0.1)
    tensor(0.5000)
    >>> learning_rate(torch.tensor(0.55), "cosine", warmup=0.1)
    tensor(0.5000)
    """
    if not warmup:
        return SCHEDULES[schedule](progress)
    after = ((progress - warmup) / (1 - warmup)).clamp(min=0)
    return torch.where(progress < warmup, progress / warmup, SCHEDULES[schedule](after))
