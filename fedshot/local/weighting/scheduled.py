"""Lambdas that are known before training: constant, or falling with progress."""

from typing import final

import torch
from torch import Tensor

from fedshot.local.schedules import SCHEDULES, ScheduleName
from fedshot.local.weighting.policy import Weighting, WeightReport, absent


@final
class Scheduled(Weighting):
    """L = L_base + weight a(p) L_align, with a schedule a of the progress p."""

    def __init__(self, weight: float, schedule: ScheduleName = "constant") -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor(float(weight)))
        self.schedule = SCHEDULES[schedule]

    weight: Tensor

    def forward(self, base: Tensor, align: Tensor, progress: Tensor) -> Tensor:
        return base + self.weight * self.schedule(progress) * align

    def report(self, base: Tensor, align: Tensor, progress: Tensor) -> WeightReport:
        attenuation = self.schedule(progress)
        return WeightReport(
            lambda_raw=self.weight,
            lambda_effective=self.weight * attenuation,
            lambda_equilibrium=absent(base),
            base_scale=torch.ones_like(base),
            attenuation=attenuation,
            sigma_local=absent(base),
            sigma_align=absent(base),
        )


@final
class AfterWarmup(Weighting):
    """The base loss alone until progress reaches `start`; then another policy, unchanged.

    Until then the policy's parameters receive no gradient: they keep their start, and there is no equilibrium.
    """

    def __init__(self, policy: Weighting, start: float) -> None:
        super().__init__()
        self.policy = policy
        self.start = start
        self.learning_rate = policy.learning_rate
        self.clip = policy.clip

    def forward(self, base: Tensor, align: Tensor, progress: Tensor) -> Tensor:
        return torch.where(progress < self.start, base, self.policy(base, align, progress))

    def report(self, base: Tensor, align: Tensor, progress: Tensor) -> WeightReport:
        inner = self.policy.report(base, align, progress)
        warm = progress < self.start
        return WeightReport(
            **{
                **vars(inner),
                "lambda_effective": inner.lambda_effective.masked_fill(warm, 0.0),
                "lambda_equilibrium": inner.lambda_equilibrium.masked_fill(warm, torch.nan),
                "base_scale": inner.base_scale.masked_fill(warm, 1.0),
            }
        )
