"""The lambda policy: how the base loss and the alignment loss become the loss of a step."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class WeightReport:
    """What a policy did in a step, as 0-dim tensors. NaN stands for a quantity that the policy does not have."""

    lambda_raw: Tensor  # the policy's own ratio, before any schedule
    lambda_effective: Tensor  # what really multiplied the gradient of the alignment loss
    lambda_equilibrium: Tensor  # where lambda_raw would settle if the losses and the progress stood still
    base_scale: Tensor  # what really multiplied the gradient of the base loss
    attenuation: Tensor  # the value of the policy's schedule
    sigma_local: Tensor
    sigma_align: Tensor


class Weighting(nn.Module, ABC):
    """A policy. A learned one brings parameters, their learning rate and their own gradient clipping."""

    learning_rate: float = 0.0
    clip: float = 1.0

    @abstractmethod
    def forward(self, base: Tensor, align: Tensor, progress: Tensor) -> Tensor:
        """The loss of a step from two 0-dim losses and the progress of the run."""

    @abstractmethod
    def report(self, base: Tensor, align: Tensor, progress: Tensor) -> WeightReport:
        """What `forward` uses at these losses and this progress."""


def absent(like: Tensor) -> Tensor:
    """The value of a quantity that a policy does not have."""
    return torch.full_like(like, torch.nan)
