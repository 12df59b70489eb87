"""Contrast with hard negatives and contrast that is balanced over classes: formulas, neutral values, edge cases."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedshot.local.losses import balanced_supcon, hard_contrast, supcon


def draw(*shape: int, seed: int) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return F.normalize(values, dim=-1)


FEATURES, LABELS = draw(8, 6, seed=1), torch.tensor([0, 2, 1, 0, 2, 2, 4, 0])
ORDER = torch.tensor([3, 0, 6, 2, 7, 5, 1, 4])
ROTATION = torch.linalg.qr(draw(6, 6, seed=4)).Q
Vector = list[float]


def dot(one: Vector, other: Vector) -> float:
    return sum(x * y for x, y in zip(one, other, strict=True))


def unit_mean(one: Vector, other: Vector) -> Vector:
    added = [x + y for x, y in zip(one, other, strict=True)]
    return [x / math.sqrt(dot(added, added)) for x in added]


def naive_hard(z: list[Vector], labels: list[int], temperature: float, beta: float, synthetic: int) -> float:
    """The formula in python loops; mixed vectors are really made."""
    total = 0.0
    for i, anchor in enumerate(z):
        positives = [z[p] for p in range(len(z)) if p != i and labels[p] == labels[i]]
        negatives = [z[n] for n in range(len(z)) if labels[n] != labels[i]]
        negatives.sort(key=lambda n: -dot(anchor, n))
        hardness = [math.exp(beta * dot(anchor, n) / temperature) for n in negatives]
        weights = [len(negatives) * h / sum(hardness) for h in hardness]
        mixed = [unit_mean(negatives[j], negatives[j + 1]) for j in range(min(synthetic, len(negatives) - 1))]
        denominator = sum(math.exp(dot(anchor, p) / temperature) for p in positives)
        denominator += sum(w * math.exp(dot(anchor, n) / temperature) for w, n in zip(weights, negatives, strict=True))
        denominator += sum(math.exp(dot(anchor, m) / temperature) for m in mixed)
        shares = [math.log(math.exp(dot(anchor, p) / temperature) / denominator) for p in positives]
        total -= sum(shares) / max(len(shares), 1)
    return total / len(z)


def naive_balanced(z: list[Vector], labels: list[int], temperature: float) -> float:
    """The formula in python loops."""
    classes = sorted(set(labels))
    total = 0.0
    for label in classes:
        members = [i for i in range(len(z)) if labels[i] == label]
        for i in members:
            denominator = 0.0
            for other in classes:
                compared = [a for a in range(len(z)) if labels[a] == other and a != i]
                scores = [math.exp(dot(z[i], z[a]) / temperature) for a in compared]
                denominator += sum(scores) / max(len(scores), 1)
            shares = [math.log(math.exp(dot(z[i], z[p]) / temperature) / denominator) for p in members if p != i]
            total -= sum(shares) / max(len(shares), 1) / len(members) / len(classes)
    return total


@pytest.mark.parametrize("temperature", [0.07, 1.0])
@pytest.mark.parametrize("beta", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("synthetic", [0, 1, 3, 100])  # 100: more than there are
def test_hard_contrast_is_its_formula(temperature: float, beta: float, synthetic: int) -> None:
    expected = naive_hard(FEATURES.tolist(), LABELS.tolist(), temperature, beta, synthetic)
    value = hard_contrast(FEATURES, LABELS, temperature, beta, synthetic)
    assert float(value) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_balanced_supcon_is_its_formula(temperature: float) -> None:
    expected = naive_balanced(FEATURES.tolist(), LABELS.tolist(), temperature)
    assert float(balanced_supcon(FEATURES, LABELS, temperature)) == pytest.approx(expected, rel=1e-10)


def test_hard_contrast_of_neutral_strength_is_supcon() -> None:
    neutral = hard_contrast(FEATURES, LABELS, beta=0.0, synthetic=0)
    torch.testing.assert_close(neutral, supcon(FEATURES, LABELS), rtol=1e-12, atol=0)


def test_hardness_and_mixed_negatives_make_the_task_harder() -> None:
    plain, weighed = (hard_contrast(FEATURES, LABELS, beta=beta) for beta in (0.0, 1.0))
    assert plain < weighed < hard_contrast(FEATURES, LABELS, beta=1.0, synthetic=2)


def test_weights_of_hardness_get_no_gradient() -> None:
    """The slope is that of the loss with its weights held where they are."""
    z, t, beta = FEATURES.clone().requires_grad_(), 0.5, 1.5
    (slope,) = torch.autograd.grad(hard_contrast(z, LABELS, t, beta), z)
    same = LABELS[:, None] == LABELS
    positive, itself = same & ~torch.eye(8, dtype=torch.bool), torch.eye(8)
    raw = (beta * FEATURES @ FEATURES.T / t).exp() * ~same
    held = raw * (~same).sum(dim=1, keepdim=True) / raw.sum(dim=1, keepdim=True) + same - itself
    scores = (z @ z.T / t).exp()
    shares = (scores / (held * scores).sum(dim=1, keepdim=True)).log() * positive
    value = -(shares.sum(dim=1) / positive.sum(dim=1).clamp(min=1)).mean()
    torch.testing.assert_close(slope, torch.autograd.grad(value, z)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sizes", [(2, 2), (2, 9), (5, 2, 3)])
def test_balanced_supcon_of_collapsed_orthogonal_classes_does_not_know_their_sizes(sizes: tuple[int, ...]) -> None:
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    value = balanced_supcon(torch.eye(len(sizes), dtype=torch.float64)[labels], labels, temperature=0.5)
    assert float(value) == pytest.approx(math.log(1 + (len(sizes) - 1) * math.exp(-2)), rel=1e-12)


def test_a_large_class_weighs_no_more_than_a_small_one() -> None:
    def value(loss: Callable[[Tensor, Tensor], Tensor], copies: int) -> float:
        return float(loss(FEATURES[[0, 3] + copies * [1]], torch.tensor([0, 0] + copies * [1])))

    assert value(balanced_supcon, 9) == pytest.approx(value(balanced_supcon, 2), rel=1e-12)
    assert value(supcon, 9) > 1.5 * value(supcon, 2)


CALLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "hard": lambda f, y: hard_contrast(f, y, 0.5, 1.0),
    "mixed": lambda f, y: hard_contrast(f, y, 0.5, 0.0, 3),
    "both": lambda f, y: hard_contrast(f, y, 0.5, 1.0, 3),
    "balanced": lambda f, y: balanced_supcon(f, y, 0.5),
}


@pytest.mark.parametrize("name", CALLS)
def test_order_and_rotation_do_not_matter(name: str) -> None:
    value = CALLS[name](FEATURES, LABELS)
    torch.testing.assert_close(CALLS[name](FEATURES[ORDER], LABELS[ORDER]), value, rtol=1e-12, atol=0)
    torch.testing.assert_close(CALLS[name](FEATURES @ ROTATION, LABELS), value, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["mixed", "balanced"])
def test_the_gradient_is_that_of_the_value(name: str) -> None:
    # of unit vectors, as the closed form of a mixed negative asks for
    features = FEATURES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda f: CALLS[name](F.normalize(f, dim=1), LABELS), (features,), fast_mode=True)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("classes", [1, 2])
@pytest.mark.parametrize("name", CALLS)
def test_small_batches_and_batches_of_one_class_have_a_finite_value_and_gradient(
    name: str, classes: int, count: int
) -> None:
    features = torch.cat([FEATURES[:1], -FEATURES[:1]])[:classes].repeat(count, 1).float().requires_grad_()
    labels = torch.arange(classes).repeat(count)
    value = CALLS[name](features, labels)
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        (slope,) = torch.autograd.grad(value, features)
    assert value.isfinite() and value.shape == () and slope.isfinite().all()
    if classes == 1 and name != "balanced":
        torch.testing.assert_close(value, supcon(features, labels, 0.5))  # no negatives at all


def test_opposite_negatives_have_no_mean_direction_and_do_no_harm() -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], requires_grad=True)
    value = hard_contrast(features, torch.tensor([0, 0, 1, 1]), 0.5, 0.0, 1)
    (slope,) = torch.autograd.grad(value, features)
    assert value.isfinite() and slope.isfinite().all()


@pytest.mark.parametrize("name", CALLS)
def test_no_value_or_shape_depends_on_the_data(name: str) -> None:
    assert CALLS[name](FEATURES.to("meta"), LABELS.to("meta")).shape == ()
