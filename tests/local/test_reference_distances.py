"""Distances of features to a fixed reference: their formulas typed out naively, and where their gradients lead."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedshot.local import losses
from fedshot.local.losses.sliced_wasserstein import sorted_projections
from fedshot.local.references import ReferenceKind, directions, reference

WIDTH = 24
POINTS = reference("gaussian", 400, WIDTH, seed=1).double()
AXES = directions(200, WIDTH, seed=1).double()
Distance = Callable[[Tensor], Tensor]
DISTANCES: dict[str, Distance] = {
    "mmd": lambda x: losses.mmd(x, POINTS.to(x)),
    "coral": lambda x: losses.coral(x, 1 / WIDTH),
    "sliced_wasserstein": lambda x: losses.sliced_wasserstein(x, AXES.to(x), sorted_projections(POINTS, AXES).to(x)),
}


@pytest.fixture(params=DISTANCES)
def distance(request: pytest.FixtureRequest) -> Distance:
    return DISTANCES[request.param]


def fresh(size: int, kind: ReferenceKind = "gaussian") -> Tensor:
    """Vectors of the reference's distribution that are not in the reference."""
    return reference(kind, size, WIDTH, seed=2).double()


def dot(a: Tensor, b: Tensor) -> float:
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))


def test_mmd_is_its_formula() -> None:
    x, y = fresh(7), POINTS[:5]

    def kernel(a: Tensor, b: Tensor) -> float:
        return math.exp(-dot(a - b, a - b) / 2)

    within = [
        sum(kernel(a, b) for i, a in enumerate(s) for j, b in enumerate(s) if i != j) / (len(s) * (len(s) - 1))
        for s in (x, y)
    ]
    across = sum(kernel(a, b) for a in x for b in y) / 35
    assert float(losses.mmd(x, y)) == pytest.approx(sum(within) - 2 * across, rel=1e-12)


def test_coral_is_its_formula_and_unbiased() -> None:
    x, v = fresh(7), 0.3
    squares = sum(dot(x[i], x[j]) ** 2 for i in range(7) for j in range(7) if i != j) / 42
    expected = squares - 2 * v * sum(dot(a, a) for a in x) / 7 + v**2 * WIDTH
    assert float(losses.coral(x, v)) == pytest.approx(expected, rel=1e-12)
    # the mean over all pairs that four vectors allow is the distance of their second moments
    four = fresh(4)
    pairs = torch.stack([losses.coral(four[[i, j]], v) for i in range(4) for j in range(4)])
    moment = four.T @ four / 4
    assert float(pairs.mean()) == pytest.approx(
        float((moment - v * torch.eye(WIDTH, dtype=torch.float64)).square().sum()), rel=1e-10
    )


@pytest.mark.parametrize("batch", [1, 5, 8, 11])
def test_sliced_wasserstein_is_its_formula(batch: int) -> None:
    x, y, axes = fresh(batch), POINTS[:8], AXES[:3]

    def quantile(ascending: list[float], level: float) -> float:
        place = level * len(ascending) - 0.5
        low = min(max(math.floor(place), 0), len(ascending) - 1)
        high = min(low + 1, len(ascending) - 1)
        share = min(max(place - low, 0.0), 1.0)
        return (1 - share) * ascending[low] + share * ascending[high]

    total = 0.0
    for axis in axes:
        ours, theirs = (sorted(dot(axis, vector) for vector in vectors) for vectors in (x, y))
        total += sum((ours[i] - quantile(theirs, (i + 0.5) / batch)) ** 2 for i in range(batch)) / batch
    found = losses.sliced_wasserstein(x, axes, sorted_projections(y, axes))
    assert float(found) == pytest.approx(WIDTH * total / 3, rel=1e-10)


def test_sliced_wasserstein_of_equally_many_vectors_is_that_of_two_samples() -> None:
    x = fresh(len(POINTS))
    two_samples = (sorted_projections(x, AXES) - sorted_projections(POINTS, AXES)).square().mean()
    torch.testing.assert_close(DISTANCES["sliced_wasserstein"](x), WIDTH * two_samples)
    assert float(DISTANCES["sliced_wasserstein"](POINTS.flip(0))) < 1e-20


@pytest.mark.parametrize("kind", ["sphere", "gaussian"])
def test_the_reference_itself_is_nearest_and_every_step_away_counts(distance: Distance, kind: ReferenceKind) -> None:
    x = fresh(300, kind)
    near = float(distance(x))
    assert abs(near) < 0.1
    shift = torch.full((WIDTH,), WIDTH**-0.5, dtype=torch.float64)  # of length 1
    moved = [near, *(float(distance(x + step * shift)) for step in (0.3, 0.6, 1.0))]
    assert moved == sorted(moved) and moved[-1] > near + 0.2
    together = float(distance(F.normalize(x + 3 * shift, dim=1)))  # still unit, in a narrow cone
    assert together > near + 0.3


def test_a_shift_counts_its_squared_length_at_every_width() -> None:
    for width in (16, 256):
        x, axes = reference("gaussian", 50, width, seed=3), directions(4000, width, seed=3)
        shift = torch.zeros(width)
        shift[0] = 0.5
        found = losses.sliced_wasserstein(x + shift, axes, sorted_projections(x, axes))
        assert float(found) == pytest.approx(0.25, rel=0.1)


def test_gradients_lead_features_to_the_reference(distance: Distance) -> None:
    start = 0.3 * fresh(60) + 0.15
    x = start.clone().requires_grad_()
    optimiser = torch.optim.SGD([x], lr=3.0)
    for _ in range(100):
        optimiser.zero_grad()
        distance(x).backward()
        optimiser.step()
    moments = [torch.linalg.norm(s.T @ s / len(s) - torch.eye(WIDTH) / WIDTH) for s in (start, x.detach())]
    assert distance(x) < 0.1 * distance(start)
    assert moments[1] < 0.7 * moments[0]
    assert x.detach().mean(0).norm() < 0.4 * start.mean(0).norm()


def test_the_order_of_features_does_not_matter_and_one_is_enough(distance: Distance) -> None:
    x = fresh(9)
    torch.testing.assert_close(distance(x.flip(0)), distance(x))
    alone = x[:1].clone().requires_grad_()
    distance(alone).backward()
    assert alone.grad is not None and alone.grad.isfinite().all()


def test_features_that_fall_together_gain_nothing_in_a_small_batch() -> None:
    # centred covariances of 8 vectors in 256 dimensions would prefer the collapsed batch
    spread = reference("sphere", 8, 256, seed=1)
    fallen = F.normalize(torch.ones(8, 256) + 0.1 * spread, dim=1)
    assert losses.coral(fallen, 1 / 256) > losses.coral(spread, 1 / 256) + 0.5


def test_references_are_what_they_say_and_common_knowledge() -> None:
    sphere, gaussian = (reference(kind, 4000, 32, seed=1) for kind in ("sphere", "gaussian"))
    torch.testing.assert_close(sphere.norm(dim=1), torch.ones(4000))
    for drawn in (sphere, gaussian):
        assert drawn.dtype == torch.float32
        assert drawn.mean(0).abs().max() < 0.02
        torch.testing.assert_close(drawn.T @ drawn / 4000, torch.eye(32) / 32, rtol=0, atol=0.003)
    assert 0.05 < float(gaussian.norm(dim=1).std()) < 0.2
    assert torch.equal(reference("sphere", 9, 32, seed=5), reference("sphere", 9, 32, seed=5))
    assert not torch.equal(reference("sphere", 9, 32, seed=5), reference("sphere", 9, 32, seed=6))
    assert not torch.equal(reference("sphere", 9, 32, seed=5), directions(9, 32, seed=5))  # a stream of its own
    torch.testing.assert_close(directions(9, 32, seed=5).norm(dim=1), torch.ones(9))
