"""Lambdas learned by homoscedastic uncertainty, Kendall et al. 2018 (arXiv:1705.07115): the notes' forms V10 to V14.

Two scalars for each client, u = log sigma_local^2 and v = log sigma_align^2; lambda is the ratio of variances e^(u-v).
Each form has a closed-form equilibrium: the lambda at which u and v stand still while the losses stand still.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol, final

import torch
from torch import Tensor, nn

from fedshot.local.schedules import SCHEDULES, ScheduleName
from fedshot.local.weighting.policy import Weighting, WeightReport
from fedshot.options import NotNegative


@dataclass(frozen=True)
class SigmaLearning:
    """How the two scalars are learned: their own learning rate and gradient clip, and where they start.

    `start_local` and `start_align` are the starts of u and v; None for u means the log of the lambda that the method
    starts with.
    """

    learning_rate: NotNegative = 0.005
    gradient_limit: NotNegative = 1.0
    start_local: float | None = None
    start_align: float = 0.0


class _TwoSigmas(Weighting):
    """Holds u and v. Unless told otherwise they start at log(start) and 0, so that lambda starts at `start`."""

    def __init__(self, start: float, sigma: SigmaLearning) -> None:
        super().__init__()
        local = math.log(start) if sigma.start_local is None else sigma.start_local
        self.log_variance_local = nn.Parameter(torch.tensor(float(local)))
        self.log_variance_align = nn.Parameter(torch.tensor(float(sigma.start_align)))
        self.learning_rate = sigma.learning_rate
        self.clip = sigma.gradient_limit

    def ratio(self) -> Tensor:
        return torch.exp(self.log_variance_local - self.log_variance_align)

    @abstractmethod
    def equilibrium(self, base: Tensor, align: Tensor, progress: Tensor) -> Tensor:
        """The lambda at which u and v stand still."""


@final
class CoupledUncertainty(_TwoSigmas):
    """V10 and V11: the weights see the same loss as the sigmas.

    L = scale [ L_b / 2 sigma_l^2 + a(p) L_a / 2 sigma_a^2 + (u + v) / 2 ]

    scale = 1 as first written, which also divides the gradient of the base loss by 2 sigma_l^2 (a hidden cut of the
    learning rate); scale = stop_gradient(2 sigma_l^2) when `rescaled`, so that the weights see L_b + a lambda L_a.
    Equilibrium: sigma_l^2 = L_b, sigma_a^2 = a L_a, so lambda = L_b / (a L_a) and a lambda = L_b / L_a whatever a is:
    an external schedule a is cancelled exactly (V11).
    """

    def __init__(
        self,
        start: float,
        sigma: SigmaLearning = SigmaLearning(),
        rescaled: bool = True,
        schedule: ScheduleName = "constant",
    ) -> None:
        super().__init__(start, sigma)
        self.rescaled = rescaled
        self.schedule = SCHEDULES[schedule]

    def _scale(self) -> Tensor:
        variance = torch.exp(self.log_variance_local).detach()
        return 2 * variance if self.rescaled else torch.ones_like(variance)

    def forward(self, base: Tensor, align: Tensor, progress: Tensor) -> Tensor:
        u, v = self.log_variance_local, self.log_variance_align
        attenuated = self.schedule(progress) * align
        return self._scale() * (base * torch.exp(-u) + attenuated * torch.exp(-v) + u + v) / 2

    def equilibrium(self, base: Tensor, align: Tensor, progress: Tensor) -> Tensor:
        return base / (self.schedule(progress) * align)

    def report(self, base: Tensor, align: Tensor, progress: Tensor) -> WeightReport:
        u, v = self.log_variance_local, self.log_variance_align
        attenuation, scale = self.schedule(progress), self._scale()
        return WeightReport(
            lambda_raw=self.ratio(),
            lambda_effective=scale * attenuation * torch.exp(-v) / 2,
            lambda_equilibrium=self.equilibrium(base, align, progress),
            base_scale=scale * torch.exp(-u) / 2,
            attenuation=attenuation,
            sigma_local=torch.exp(u / 2),
            sigma_align=torch.exp(v / 2),
        )


class Penalty(Protocol):
    """A further term on the sigmas, with the equilibrium that it leads to."""

    def __call__(self, u: Tensor, v: Tensor) -> Tensor: ...

    def equilibrium(self, base: Tensor, align: Tensor, prior: Tensor) -> Tensor:
        """lambda for a data term L_a / 2 sigma_a^2 and a log prior weighted by `prior`."""


@dataclass(frozen=True)
class NoPenalty:
    """sigma_l^2 = L_b and sigma_a^2 = L_a / prior, so lambda = prior L_b / L_a."""

    def __call__(self, u: Tensor, v: Tensor) -> Tensor:
        return torch.zeros_like(u)

    def equilibrium(self, base: Tensor, align: Tensor, prior: Tensor) -> Tensor:
        return prior * base / align


@dataclass(frozen=True)
class InverseVariance:
    """gamma / sigma_a^2 (V13): sigma_a^2 = (L_a + 2 gamma) / prior, so lambda < prior L_b / (2 gamma)."""

    gamma: NotNegative = 1e-5

    def __call__(self, u: Tensor, v: Tensor) -> Tensor:
        return self.gamma * torch.exp(-v)

    def equilibrium(self, base: Tensor, align: Tensor, prior: Tensor) -> Tensor:
        return prior * base / (align + 2 * self.gamma)


@dataclass(frozen=True)
class Hinge:
    """gamma max(0, lambda - cap) (V14).

    Above the cap, lambda = r (prior - 2 gamma lambda) / (1 + 2 gamma lambda) with r = L_b / L_a, a quadratic in lambda.
    Its root lies below prior / (2 gamma): at gamma = 1e-5 the cap of 50 is not a bound at 50.
    """

    gamma: NotNegative = 1e-5
    cap: NotNegative = 50.0

    def __call__(self, u: Tensor, v: Tensor) -> Tensor:
        return self.gamma * torch.relu(torch.exp(u - v) - self.cap)

    def equilibrium(self, base: Tensor, align: Tensor, prior: Tensor) -> Tensor:
        r = base / align
        free = prior * r
        if self.gamma == 0:
            return free
        b = 1 + 2 * self.gamma * r
        above = 2 * r * prior / (b + torch.sqrt(b * b + 8 * self.gamma * r * prior))
        return torch.where(free <= self.cap, free, above.clamp(min=self.cap))


@final
class DecoupledUncertainty(_TwoSigmas):
    """V12 to V14: stop-gradients give the weights and the sigmas a loss of their own in one backward pass.

    L = L_b + sg(lambda) L_a + sg(L_b) / 2 sigma_l^2 + d(p) sg(L_a) / 2 sigma_a^2 + (u + q(p) v) / 2 + penalty(u, v)

    With the data term attenuated, d = s(p) (V12, V13), sigma_a^2 = s L_a and lambda = L_b / (s L_a) grows without
    bound as s falls: the opposite of what was meant. With the log prior attenuated, q = s(p) (V14), lambda falls as
    s L_b / L_a.
    """

    def __init__(
        self,
        start: float,
        sigma: SigmaLearning = SigmaLearning(),
        data: ScheduleName = "constant",
        prior: ScheduleName = "constant",
        penalty: Penalty = NoPenalty(),
    ) -> None:
        super().__init__(start, sigma)
        self.data = SCHEDULES[data]
        self.prior = SCHEDULES[prior]
        self.penalty = penalty

    def forward(self, base: Tensor, align: Tensor, progress: Tensor) -> Tensor:
        u, v = self.log_variance_local, self.log_variance_align
        data_term = base.detach() * torch.exp(-u) + self.data(progress) * align.detach() * torch.exp(-v)
        sigmas = (data_term + u + self.prior(progress) * v) / 2 + self.penalty(u, v)
        return base + self.ratio().detach() * align + sigmas

    def equilibrium(self, base: Tensor, align: Tensor, progress: Tensor) -> Tensor:
        return self.penalty.equilibrium(base, self.data(progress) * align, self.prior(progress))

    def report(self, base: Tensor, align: Tensor, progress: Tensor) -> WeightReport:
        ratio = self.ratio()
        return WeightReport(
            lambda_raw=ratio,
            lambda_effective=ratio,
            lambda_equilibrium=self.equilibrium(base, align, progress),
            base_scale=torch.ones_like(base),
            attenuation=self.data(progress) * self.prior(progress),
            sigma_local=torch.exp(self.log_variance_local / 2),
            sigma_align=torch.exp(self.log_variance_align / 2),
        )
