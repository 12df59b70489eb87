"""Every loss against its formula typed out naively, a closed form, an invariance and its edge cases."""

import inspect
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedshot.local import losses


def draw(*shape: int, seed: int = 0, unit: bool = False) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return F.normalize(values, dim=-1) if unit else values


LABELS = torch.tensor([0, 2, 1, 0, 2, 2, 4])  # class 3 is absent, classes 1 and 4 are alone
FEATURES = draw(7, 6, seed=1, unit=True)
PROTOTYPES = draw(5, 6, seed=2)
ANCHORS = draw(5, 6, seed=3, unit=True)
ROTATION = torch.linalg.qr(draw(6, 6, seed=4)).Q
ORDER = torch.tensor([3, 0, 6, 2, 5, 1, 4])


def dot(a: Tensor, b: Tensor) -> float:
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))


def squared(a: Tensor, b: Tensor) -> float:
    return sum((x - y) ** 2 for x, y in zip(a.tolist(), b.tolist(), strict=True))


def naive_cross_entropy(logits: list[list[float]], labels: list[int], prior: list[float] | None = None) -> float:
    weights = prior or [1.0] * len(logits[0])
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        denominator = sum(weights[c] * math.exp(row[c]) for c in range(len(row)))
        total -= math.log(weights[label] * math.exp(row[label]) / denominator)
    return total / len(labels)


def naive_supcon(features: Tensor, labels: list[int], temperature: float) -> float:
    count, total = len(labels), 0.0
    for i in range(count):
        positives = [p for p in range(count) if p != i and labels[p] == labels[i]]
        if not positives:
            continue
        denominator = sum(math.exp(dot(features[i], features[a]) / temperature) for a in range(count) if a != i)
        mean = 0.0
        for p in positives:
            mean += math.log(math.exp(dot(features[i], features[p]) / temperature) / denominator) / len(positives)
        total -= mean
    return total / count


def test_cross_entropy_is_its_formula() -> None:
    logits = draw(7, 5)
    assert float(losses.cross_entropy(logits, LABELS)) == pytest.approx(
        naive_cross_entropy(logits.tolist(), LABELS.tolist()), rel=1e-12
    )


def test_balanced_softmax_is_its_formula_and_counts_an_absent_class_as_one() -> None:
    logits, counts = draw(7, 5), torch.tensor([20, 3, 40, 0, 1])
    expected = naive_cross_entropy(logits.tolist(), LABELS.tolist(), prior=[20.0, 3.0, 40.0, 1.0, 1.0])
    assert float(losses.balanced_softmax(logits, LABELS, counts)) == pytest.approx(expected, rel=1e-12)


def test_balanced_softmax_with_equal_counts_is_cross_entropy() -> None:
    logits = draw(7, 5)
    torch.testing.assert_close(
        losses.balanced_softmax(logits, LABELS, torch.full((5,), 9)), losses.cross_entropy(logits, LABELS)
    )


@pytest.mark.parametrize("temperature", [0.07, 0.5, 1.0])
def test_supcon_is_its_formula(temperature: float) -> None:
    expected = naive_supcon(FEATURES, LABELS.tolist(), temperature)
    assert float(losses.supcon(FEATURES, LABELS, temperature)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("classes", "each"), [(2, 3), (4, 2), (3, 5)])
def test_supcon_of_collapsed_orthogonal_classes(classes: int, each: int) -> None:
    features = torch.eye(classes, dtype=torch.float64).repeat_interleave(each, 0)
    labels = torch.arange(classes).repeat_interleave(each)
    expected = math.log(each - 1 + each * (classes - 1) * math.exp(-1 / 0.07))
    assert float(losses.supcon(features, labels)) == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_supcon_without_positives_is_zero_and_such_anchors_stay_in_the_mean() -> None:
    assert losses.supcon(FEATURES, torch.arange(7)) == 0
    assert losses.supcon(FEATURES[:1], torch.tensor([3])) == 0
    pair_alone = losses.supcon(FEATURES[[0, 3]], torch.tensor([0, 0]))
    assert pair_alone == 0  # the only other is the positive: log 1
    two_of_three = losses.supcon(FEATURES[:3], torch.tensor([0, 0, 1]), temperature=1.0)
    z = FEATURES[:3]
    terms = [
        math.log(1 + math.exp(dot(z[0], z[2]) - dot(z[0], z[1]))),
        math.log(1 + math.exp(dot(z[1], z[2]) - dot(z[0], z[1]))),
    ]
    assert float(two_of_three) == pytest.approx(sum(terms) / 3, rel=1e-12)


def test_supcon_survives_a_tiny_temperature_in_float32() -> None:
    features = FEATURES.float().requires_grad_()
    value = losses.supcon(features, LABELS, temperature=1e-3)
    value.backward()
    assert value.isfinite() and features.grad is not None and features.grad.isfinite().all()


def test_prototype_feature_is_its_formula() -> None:
    logits = [[dot(f, p) / 0.3 for p in PROTOTYPES] for f in FEATURES]
    expected = naive_cross_entropy(logits, LABELS.tolist())
    assert float(losses.prototype_feature(FEATURES, PROTOTYPES, LABELS, 0.3)) == pytest.approx(expected, rel=1e-12)


def test_prototype_feature_at_temperature_one_is_the_classification_loss_bit_for_bit() -> None:
    assert torch.equal(
        losses.prototype_feature(FEATURES, PROTOTYPES, LABELS), losses.cross_entropy(FEATURES @ PROTOTYPES.T, LABELS)
    )


def test_prototype_prototype_is_its_formula_with_the_diagonal() -> None:
    logits = [[dot(p, q) / 2.0 for q in PROTOTYPES] for p in PROTOTYPES]
    expected = naive_cross_entropy(logits, list(range(5)))
    assert float(losses.prototype_prototype(PROTOTYPES, 2.0)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("classes", [10, 100])
def test_prototype_prototype_is_dead_at_the_published_initialisation(classes: int) -> None:
    prototypes = draw(classes, 512).float().requires_grad_()
    value = losses.prototype_prototype(prototypes)
    value.backward()
    assert value.item() == 0.0
    assert prototypes.grad is not None and prototypes.grad.abs().max() == 0.0


def test_prototype_prototype_of_orthonormal_rows() -> None:
    value = losses.prototype_prototype(torch.eye(4, dtype=torch.float64))
    assert float(value) == pytest.approx(math.log(math.e + 3) - 1, rel=1e-12)
    assert losses.prototype_prototype(PROTOTYPES[:1]) == 0


def test_mean_squared_distances_are_their_formulas() -> None:
    distance = [squared(p, a) for p, a in zip(PROTOTYPES, ANCHORS, strict=True)]
    assert float(losses.mse_all(PROTOTYPES, ANCHORS)) == pytest.approx(sum(distance) / 30, rel=1e-12)
    present = sum(distance[c] for c in {0, 1, 2, 4}) / (4 * 6)
    assert float(losses.mse_present(PROTOTYPES, ANCHORS, LABELS)) == pytest.approx(present, rel=1e-12)


def test_cosine_distances_are_their_formulas() -> None:
    distance = [1 - dot(p, a) / math.sqrt(dot(p, p) * dot(a, a)) for p, a in zip(PROTOTYPES, 3 * ANCHORS, strict=True)]
    assert float(losses.cosine(PROTOTYPES, 3 * ANCHORS)) == pytest.approx(sum(distance) / 5, rel=1e-12)
    assert float(losses.mean_cosine(PROTOTYPES, 3 * ANCHORS)) == pytest.approx(1 - sum(distance) / 5, rel=1e-12)


def test_absent_classes_get_no_gradient() -> None:
    prototypes = PROTOTYPES.clone().requires_grad_()
    losses.mse_present(prototypes, ANCHORS, LABELS).backward()
    assert prototypes.grad is not None
    assert (prototypes.grad[3] == 0).all() and prototypes.grad[[0, 1, 2, 4]].abs().amin(dim=1).min() > 0


def test_present_measures_over_all_classes_are_the_plain_ones() -> None:
    every = torch.tensor([4, 3, 2, 1, 0, 0])
    torch.testing.assert_close(
        losses.mse_present(PROTOTYPES, ANCHORS, every), losses.mse_all(PROTOTYPES, ANCHORS), rtol=1e-12, atol=0
    )


def test_unit_anchors_and_gaussian_prototypes_start_at_a_distance_of_one() -> None:
    assert float(losses.mse_all(draw(100, 512), draw(100, 512, seed=1, unit=True))) == pytest.approx(1.0, abs=0.03)


def test_zero_anchors_have_cosine_zero_and_no_gradient() -> None:
    prototypes = PROTOTYPES.clone().requires_grad_()
    value = losses.cosine(prototypes, torch.zeros_like(ANCHORS))
    value.backward()
    assert value == 1 and prototypes.grad is not None and (prototypes.grad == 0).all()


def test_view_alignment_is_its_formula() -> None:
    other = draw(7, 6, seed=9, unit=True)
    expected = sum(squared(f, g) for f, g in zip(FEATURES, other, strict=True)) / 7
    assert float(losses.view_alignment(FEATURES, other)) == pytest.approx(expected, rel=1e-12)
    assert losses.view_alignment(FEATURES, FEATURES) == 0


def test_uniformity_is_its_formula_without_the_diagonal() -> None:
    pairs = [math.exp(-2 * squared(FEATURES[i], FEATURES[j])) for i in range(7) for j in range(7) if i != j]
    assert float(losses.uniformity(FEATURES)) == pytest.approx(math.log(sum(pairs) / 42), rel=1e-12)


def test_uniformity_of_a_simplex_and_of_one_sample() -> None:
    corners = torch.eye(4, dtype=torch.float64)  # all at squared distance 2
    assert float(losses.uniformity(corners)) == pytest.approx(-4.0, rel=1e-12)
    assert float(losses.uniformity(corners[:1].expand(3, 4))) == pytest.approx(0.0, abs=1e-12)
    alone = FEATURES[:1].clone().requires_grad_()
    losses.uniformity(alone).backward()
    assert alone.grad is not None and (alone.grad == 0).all()


def test_view_agreement_is_its_formula_and_has_no_gradient() -> None:
    first, second = draw(7, 5).requires_grad_(), draw(7, 5, seed=1)
    expected = 0.0
    for row, other in zip(first.tolist(), second.tolist(), strict=True):
        p, q = [math.exp(z) for z in row], [math.exp(z) for z in other]
        expected += sum(a * b for a, b in zip(p, q, strict=True)) / (sum(p) * sum(q)) / 7
    value = losses.view_agreement(first, second)
    assert float(value) == pytest.approx(expected, rel=1e-12) and not value.requires_grad
    sure = 1000 * torch.eye(3)
    assert losses.view_agreement(sure, sure) == 1
    assert losses.view_agreement(sure, sure.flip(0)) == pytest.approx(1 / 3)


# Each loss as a function of (features, labels, prototypes, anchors).
CALLS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "cross_entropy": lambda f, y, p, a: losses.cross_entropy(f @ p.T, y),
    "balanced_softmax": lambda f, y, p, a: losses.balanced_softmax(f @ p.T, y, torch.arange(5)),
    "supcon": lambda f, y, p, a: losses.supcon(f, y, 0.5),
    "prototype_feature": lambda f, y, p, a: losses.prototype_feature(f, p, y),
    "prototype_prototype": lambda f, y, p, a: losses.prototype_prototype(p),
    "mse_all": lambda f, y, p, a: losses.mse_all(p, a),
    "mse_present": lambda f, y, p, a: losses.mse_present(p, a, y),
    "cosine": lambda f, y, p, a: losses.cosine(p, a),
    "mean_cosine": lambda f, y, p, a: losses.mean_cosine(p, a),
    "view_alignment": lambda f, y, p, a: losses.view_alignment(f, f.roll(1, dims=1)),
    "uniformity": lambda f, y, p, a: losses.uniformity(f),
    "view_agreement": lambda f, y, p, a: losses.view_agreement(f @ p.T, f @ a.T),
    "bank_contrast": lambda f, y, p, a: losses.bank_contrast(f, y, a, torch.arange(5, device=y.device), 0.5),
    "hard_contrast": lambda f, y, p, a: losses.hard_contrast(f, y, 0.5, beta=0.0, synthetic=2),
    "balanced_supcon": lambda f, y, p, a: losses.balanced_supcon(f, y, 0.5),
    "mmd": lambda f, y, p, a: losses.mmd(f, a),
    "coral": lambda f, y, p, a: losses.coral(f, 1 / 6),
    "sliced_wasserstein": lambda f, y, p, a: losses.sliced_wasserstein(f, a, (a @ a.T).sort(dim=1).values),
    "proximal": lambda f, y, p, a: losses.proximal([f, p], [torch.zeros_like(f), a]),
    "distillation": lambda f, y, p, a: losses.distillation(f @ p.T, (f @ a.T).softmax(1), 2.0),
}
WITHOUT_GRADIENT = {"mean_cosine", "view_agreement"}
NOT_ROTATED = {"view_alignment"}  # its second view above is made along the axes


def test_every_loss_is_called_here() -> None:
    assert set(CALLS) == set(losses.__all__)


@pytest.mark.parametrize("name", CALLS)
def test_order_of_the_batch_does_not_matter(name: str) -> None:
    value = CALLS[name](FEATURES, LABELS, PROTOTYPES, ANCHORS)
    shuffled = CALLS[name](FEATURES[ORDER], LABELS[ORDER], PROTOTYPES, ANCHORS)
    torch.testing.assert_close(shuffled, value, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", sorted(set(CALLS) - NOT_ROTATED))
def test_rotation_of_the_space_does_not_matter(name: str) -> None:
    value = CALLS[name](FEATURES, LABELS, PROTOTYPES, ANCHORS)
    turned = CALLS[name](FEATURES @ ROTATION, LABELS, PROTOTYPES @ ROTATION, ANCHORS @ ROTATION)
    torch.testing.assert_close(turned, value, rtol=1e-10, atol=1e-12)


def test_view_alignment_is_rotation_invariant() -> None:
    other = draw(7, 6, seed=9, unit=True)
    torch.testing.assert_close(
        losses.view_alignment(FEATURES @ ROTATION, other @ ROTATION), losses.view_alignment(FEATURES, other)
    )


@pytest.mark.parametrize("name", sorted(set(CALLS) - WITHOUT_GRADIENT))
def test_gradient_is_that_of_the_value(name: str) -> None:
    features, prototypes = FEATURES.clone().requires_grad_(), PROTOTYPES.clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda f, p: CALLS[name](f, LABELS, p, ANCHORS), (features, prototypes), fast_mode=True
    )


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", sorted(set(CALLS) - WITHOUT_GRADIENT))
def test_small_batches_of_one_class_have_a_finite_value_and_gradient(name: str, count: int) -> None:
    features = FEATURES[:1].repeat(count, 1).float().requires_grad_()  # equal vectors: the hardest case
    prototypes = PROTOTYPES.float().requires_grad_()
    value = CALLS[name](features, torch.zeros(count, dtype=torch.long), prototypes, ANCHORS.float())
    with torch.autograd.set_detect_anomaly(True, check_nan=True):  # not even a NaN that a mask removes later
        grads = torch.autograd.grad(value, (features, prototypes), allow_unused=True)
    assert value.isfinite() and value.shape == ()
    assert all(grad.isfinite().all() for grad in grads if grad is not None)


@pytest.mark.parametrize("name", CALLS)
def test_no_value_or_shape_depends_on_the_data(name: str) -> None:
    """On the meta device there are no values: reading one, or a shape made of one, raises."""
    tensors = [tensor.to("meta") for tensor in (FEATURES, LABELS, PROTOTYPES, ANCHORS)]
    call = CALLS[name] if name != "balanced_softmax" else _balanced_on_meta
    assert call(*tensors).shape == ()


def _balanced_on_meta(features: Tensor, labels: Tensor, prototypes: Tensor, anchors: Tensor) -> Tensor:
    return losses.balanced_softmax(features @ prototypes.T, labels, torch.arange(5, device="meta"))


def test_every_loss_states_its_formula_and_shapes() -> None:
    for name in losses.__all__:
        text = inspect.getdoc(getattr(losses, name)) or ""
        assert "Args:" in text and ">>>" in text and "(" in text, name
