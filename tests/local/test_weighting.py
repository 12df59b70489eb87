"""Lambda policies: where they settle, what the weights receive, and that the report says just that."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from fedshot.local.weighting import (
    AfterWarmup,
    CoupledUncertainty,
    DecoupledUncertainty,
    EntropyWeight,
    Hinge,
    InverseVariance,
    Scheduled,
    SigmaLearning,
    Weighting,
    WeightReport,
    label_entropy,
)
from fedshot.partition import split

BASE, ALIGN = torch.tensor(2.4), torch.tensor(0.6)  # L_b / L_a = 4

# name: (policy, progress, lambda at which it must settle for the losses above)
LEARNED: dict[str, tuple[Callable[[], Weighting], float, float]] = {
    "V10 first": (lambda: CoupledUncertainty(1.0, rescaled=False), 0.0, 4.0),
    "V10": (lambda: CoupledUncertainty(9.0), 0.3, 4.0),
    "V11 at the start": (lambda: CoupledUncertainty(9.0, schedule="linear"), 0.0, 4.0),
    "V11 linear": (lambda: CoupledUncertainty(9.0, schedule="linear"), 0.75, 16.0),
    "V11 near the end": (lambda: CoupledUncertainty(9.0, schedule="linear"), 0.95, 80.0),
    "V11 cosine": (lambda: CoupledUncertainty(9.0, schedule="cosine"), 0.5, 8.0),
    "V12": (lambda: DecoupledUncertainty(9.0, data="cosine"), 0.5, 8.0),
    "V12 late": (lambda: DecoupledUncertainty(9.0, data="cosine"), 0.9, 4 / (0.5 + 0.5 * math.cos(0.9 * math.pi))),
    "V13": (
        lambda: DecoupledUncertainty(9.0, data="cosine", penalty=InverseVariance(1e-2)),
        0.8,
        2.4 / (0.6 * (0.5 + 0.5 * math.cos(0.8 * math.pi)) + 0.02),
    ),
    "V13 gamma 0": (lambda: DecoupledUncertainty(9.0, data="cosine", penalty=InverseVariance(0.0)), 0.5, 8.0),
    "V14 below the cap": (lambda: DecoupledUncertainty(9.0, prior="cosine", penalty=Hinge()), 0.5, 2.0),
    "V14 gamma 0": (lambda: DecoupledUncertainty(9.0, prior="cosine", penalty=Hinge(0.0, cap=1.0)), 0.5, 2.0),
    # 2 gamma x^2 + (1 + 2 gamma r) x - r s = 0 with gamma = 0.1, r = 4, s = 1
    "V14 hinge": (
        lambda: DecoupledUncertainty(9.0, prior="cosine", penalty=Hinge(0.1, cap=1.0)),
        0.0,
        (-1.8 + math.sqrt(1.8**2 + 3.2)) / 0.4,
    ),
    # so large a gamma that lambda rests at the cap itself
    "V14 held at the cap": (lambda: DecoupledUncertainty(2.9, prior="cosine", penalty=Hinge(0.5, cap=3.0)), 0.0, 3.0),
}


def settle(policy: Weighting, progress: Tensor, steps: int = 800) -> None:
    """Descends on the policy's own parameters while the losses stand still."""
    optimiser = torch.optim.SGD(policy.parameters(), lr=0.2)
    falling = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.0025 ** (1 / steps))  # to come to rest at a kink
    for _ in range(steps):
        optimiser.zero_grad()
        policy(BASE, ALIGN, progress).backward()
        optimiser.step()
        falling.step()


@pytest.mark.parametrize("name", LEARNED)
def test_a_learned_lambda_settles_where_it_says(name: str) -> None:
    make, progress, expected = LEARNED[name]
    policy, p = make(), torch.tensor(progress)
    start = policy.report(BASE, ALIGN, p)
    assert start.lambda_equilibrium.item() == pytest.approx(expected, rel=1e-4)
    assert not math.isclose(start.lambda_raw.item(), expected, rel_tol=0.02)  # it has a way to go
    settle(policy, p)
    end = policy.report(BASE, ALIGN, p)
    assert end.lambda_raw.item() == pytest.approx(expected, rel=0.01)
    assert end.lambda_raw.item() == pytest.approx((end.sigma_local / end.sigma_align).item() ** 2, rel=1e-5)


def test_an_external_schedule_is_cancelled_exactly() -> None:
    weights_seen = []
    for progress in (0.0, 0.25, 0.5, 0.75, 0.95):
        policy, p = CoupledUncertainty(9.0, schedule="linear"), torch.tensor(progress)
        predicted = policy.report(BASE, ALIGN, p)
        assert (predicted.attenuation * predicted.lambda_equilibrium).item() == pytest.approx(4.0, rel=1e-5)
        settle(policy, p)
        weights_seen.append(policy.report(BASE, ALIGN, p).lambda_effective.item())
    assert weights_seen == pytest.approx([4.0] * 5, rel=0.01)


def test_attenuating_the_data_term_raises_lambda_and_attenuating_the_prior_lowers_it() -> None:
    late = torch.tensor(0.9)
    data = DecoupledUncertainty(1.0, data="cosine").report(BASE, ALIGN, late)
    prior = DecoupledUncertainty(1.0, prior="cosine").report(BASE, ALIGN, late)
    assert data.lambda_equilibrium > 100 > 1 > prior.lambda_equilibrium
    assert data.attenuation == prior.attenuation


def test_the_default_hinge_is_no_bound_at_its_cap() -> None:
    policy = DecoupledUncertainty(1.0, penalty=Hinge(gamma=1e-5, cap=50.0))
    settled = policy.report(torch.tensor(3.0), torch.tensor(1e-3), torch.tensor(0.0)).lambda_equilibrium
    assert 2000 < settled.item() < 3000


ALL: dict[str, Callable[[], Weighting]] = {name: make for name, (make, _, _) in LEARNED.items()} | {
    "constant": lambda: Scheduled(5.0),
    "linear": lambda: Scheduled(5.0, "linear"),
    "after a warm-up": lambda: AfterWarmup(Scheduled(5.0, "linear"), 0.3),
    "in a warm-up": lambda: AfterWarmup(DecoupledUncertainty(5.0), 0.9),
}


@pytest.mark.parametrize("name", ALL)
def test_the_reported_numbers_are_those_that_the_weights_receive(name: str) -> None:
    policy, progress = ALL[name](), torch.tensor(0.4)
    w, v = torch.tensor(1.7, requires_grad=True), torch.tensor(0.3, requires_grad=True)
    base, align = w**2, v**2
    report = policy.report(base, align, progress)
    policy(base, align, progress).backward()
    assert w.grad is not None and v.grad is not None
    assert w.grad.item() == pytest.approx((report.base_scale * 2 * w).item(), rel=1e-6)
    assert v.grad.item() == pytest.approx((report.lambda_effective * 2 * v).item(), rel=1e-6)


def test_only_the_form_as_first_written_scales_the_gradient_of_the_base_loss() -> None:
    progress = torch.tensor(0.4)
    scales = {name: make().report(BASE, ALIGN, progress).base_scale.item() for name, make in ALL.items()}
    assert scales.pop("V10 first") == pytest.approx(0.5)
    assert list(scales.values()) == pytest.approx([1.0] * len(scales))


@pytest.mark.parametrize("penalty", [InverseVariance(0.7), Hinge(0.7, cap=0.5)])
def test_decoupled_sigmas_and_weights_do_not_see_each_other(penalty: InverseVariance | Hinge) -> None:
    policy = DecoupledUncertainty(3.0, data="cosine", prior="linear", penalty=penalty)
    w, v = torch.tensor(1.5, requires_grad=True), torch.tensor(0.5, requires_grad=True)
    policy(w**2, v**2, torch.tensor(0.5)).backward()
    u_grad, v_grad = policy.log_variance_local.grad, policy.log_variance_align.grad
    assert w.grad is not None and v.grad is not None and u_grad is not None and v_grad is not None
    assert w.grad.item() == 3.0  # 2 w, nothing of L_b / 2 sigma^2
    assert v.grad.item() == pytest.approx(3.0 * 1.0, rel=1e-6)  # lambda 2 v, nothing of L_a / 2 sigma^2
    # -L_b e^-u / 2 + 1/2 and -d L_a e^-v / 2 + q/2, u = log 3, v = 0, d = q = 1/2, and the penalty's own slopes
    slopes = (0.0, -0.7) if isinstance(penalty, InverseVariance) else (2.1, -2.1)
    assert u_grad.item() == pytest.approx(-2.25 / 6 + 0.5 + slopes[0], rel=1e-5)
    assert v_grad.item() == pytest.approx(-0.0625 + 0.25 + slopes[1], rel=1e-5)


def test_coupled_sigmas_are_scaled_with_the_loss_but_not_through_the_scale() -> None:
    policy = CoupledUncertainty(3.0)
    policy(BASE, ALIGN, torch.tensor(0.0)).backward()
    u_grad, v_grad = policy.log_variance_local.grad, policy.log_variance_align.grad
    assert u_grad is not None and v_grad is not None
    assert u_grad.item() == pytest.approx(3.0 - 2.4, rel=1e-5)  # sigma_l^2 - L_b
    assert v_grad.item() == pytest.approx(3.0 * (1 - 0.6), rel=1e-5)  # sigma_l^2 (1 - L_a / sigma_a^2)


def test_lambda_starts_where_it_is_told_and_learns_as_it_is_told() -> None:
    for kind in (CoupledUncertainty, DecoupledUncertainty):
        policy = kind(7.5, SigmaLearning(learning_rate=0.02, gradient_limit=0.3))
        report = policy.report(BASE, ALIGN, torch.tensor(0.0))
        assert report.lambda_raw.item() == pytest.approx(7.5) == report.sigma_local.item() ** 2
        assert report.sigma_align.item() == 1.0
        assert (policy.learning_rate, policy.clip) == (0.02, 0.3)
        assert len(list(policy.parameters())) == 2


def test_a_scheduled_lambda_is_weight_times_schedule() -> None:
    policy, progress = Scheduled(5.0, "linear"), torch.tensor(0.25)
    report = policy.report(BASE, ALIGN, progress)
    assert policy(BASE, ALIGN, progress).item() == pytest.approx(2.4 + 5 * 0.75 * 0.6)
    assert (report.lambda_raw.item(), report.lambda_effective.item(), report.attenuation.item()) == (5.0, 3.75, 0.75)
    assert all(getattr(report, name).isnan() for name in ("lambda_equilibrium", "sigma_local", "sigma_align"))
    assert not list(policy.parameters())


def test_before_the_end_of_a_warmup_there_is_the_base_loss_alone() -> None:
    inner = DecoupledUncertainty(5.0, SigmaLearning(0.02, 0.3))
    policy, progress = AfterWarmup(inner, 0.5), torch.tensor(0.49)
    loss = policy(BASE, ALIGN, progress)
    loss.backward()
    report = policy.report(BASE, ALIGN, progress)
    assert loss.item() == BASE.item()
    assert [p.grad.item() for p in policy.parameters() if p.grad is not None] == [0.0, 0.0]
    assert (report.lambda_effective.item(), report.base_scale.item()) == (0.0, 1.0)
    assert report.lambda_raw.item() == pytest.approx(5.0)
    assert report.lambda_equilibrium.isnan()


def test_after_a_warmup_the_inner_policy_is_unchanged() -> None:
    inner = DecoupledUncertainty(5.0, SigmaLearning(0.02, 0.3))
    policy, progress = AfterWarmup(inner, 0.5), torch.tensor(0.5)
    assert torch.equal(policy(BASE, ALIGN, progress), inner(BASE, ALIGN, progress))
    assert _plain(policy.report(BASE, ALIGN, progress)) == _plain(inner.report(BASE, ALIGN, progress))
    assert (policy.learning_rate, policy.clip) == (inner.learning_rate, inner.clip)
    assert list(policy.parameters()) == list(inner.parameters())


def _plain(report: WeightReport) -> dict[str, float]:
    return {name: value.item() for name, value in vars(report).items()}


def test_entropy_weights_are_those_of_the_first_note() -> None:
    labels = np.repeat(np.arange(10), 5000)
    partition = split(labels, "dirichlet", clients=5, seed=1, alpha=0.05)
    weight = EntropyWeight(0.1, 10.0)
    found = [weight(counts) for counts in partition.class_counts.tolist()]
    # the note computed them from entropies of four digits
    assert found == pytest.approx([5.7859, 5.4634, 1.9152, 3.5837, 5.2395], abs=2e-4)


def test_entropy_weight_reaches_both_ends() -> None:
    weight = EntropyWeight(0.5, 8.0)
    assert weight([7, 0, 0]) == 0.5
    assert weight([7, 7, 7]) == pytest.approx(8.0)
    assert weight([7]) == 0.5 and weight([0, 0]) == 0.5  # one class in all, and no sample at all
    assert label_entropy([0, 0]) == 0.0
    assert str(label_entropy([4, 0])) == "0.0"


def test_the_sigmas_start_where_they_are_told() -> None:
    told = DecoupledUncertainty(5.0, SigmaLearning(start_local=-1.0, start_align=0.5))
    assert (told.log_variance_local.item(), told.log_variance_align.item()) == (-1.0, 0.5)
    untold = DecoupledUncertainty(5.0)
    assert untold.log_variance_local.item() == pytest.approx(math.log(5.0))
    assert untold.log_variance_align.item() == 0.0
