"""Contrast against a bank: its formula typed out naively, its neutral value, its edge cases."""

import math
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedshot.local.losses import bank_contrast, supcon

SameClass = Literal["repel", "ignore", "attract"]
FORMS: tuple[SameClass, ...] = ("repel", "ignore", "attract")


def draw(*shape: int, seed: int) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return F.normalize(values, dim=-1)


FEATURES, LABELS = draw(7, 6, seed=1), torch.tensor([0, 2, 1, 0, 2, 2, 4])
BANK, BANK_LABELS = draw(5, 6, seed=2), torch.tensor([2, 0, 3, 4, 2])
FILLED = torch.tensor([True, True, True, True, False])


def naive(form: SameClass, temperature: float, filled: list[bool]) -> float:
    """The formula in python loops."""
    z, b = FEATURES.tolist(), BANK.tolist()
    labels, bank_labels = LABELS.tolist(), BANK_LABELS.tolist()

    def score(one: list[float], other: list[float]) -> float:
        return math.exp(sum(x * y for x, y in zip(one, other, strict=True)) / temperature)

    total = 0.0
    for i in range(7):
        denominator = sum(score(z[i], z[a]) for a in range(7) if a != i)
        matches = [score(z[i], z[p]) for p in range(7) if p != i and labels[p] == labels[i]]
        for m in range(5):
            same = labels[i] == bank_labels[m]
            if filled[m] and not (form == "ignore" and same):
                denominator += score(z[i], b[m])
            if filled[m] and form == "attract" and same:
                matches.append(score(z[i], b[m]))
        total -= sum(math.log(match / denominator) for match in matches) / max(len(matches), 1)
    return total / 7


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_it_is_its_formula(form: SameClass, temperature: float) -> None:
    value = bank_contrast(FEATURES, LABELS, BANK, BANK_LABELS, temperature, form, FILLED)
    assert float(value) == pytest.approx(naive(form, temperature, FILLED.tolist()), rel=1e-10)
    everything = bank_contrast(FEATURES, LABELS, BANK, BANK_LABELS, temperature, form)
    assert float(everything) == pytest.approx(naive(form, temperature, [True] * 5), rel=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_a_bank_without_entries_gives_supcon(form: SameClass) -> None:
    expected = supcon(FEATURES, LABELS)
    unfilled = bank_contrast(FEATURES, LABELS, BANK, BANK_LABELS, 0.07, form, torch.zeros(5, dtype=torch.bool))
    without = bank_contrast(FEATURES, LABELS, BANK[:0], BANK_LABELS[:0], 0.07, form)
    torch.testing.assert_close(unfilled, expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(without, expected, rtol=1e-12, atol=0)


def test_the_forms_differ_only_in_entries_of_a_class_of_the_batch() -> None:
    values = {float(bank_contrast(FEATURES, LABELS, BANK, BANK_LABELS, 0.07, form)) for form in FORMS}
    assert len(values) == 3
    elsewhere = torch.full_like(BANK_LABELS, 9)
    values = {float(bank_contrast(FEATURES, LABELS, BANK, elsewhere, 0.07, form)) for form in FORMS}
    assert len(values) == 1


@pytest.mark.parametrize("form", FORMS)
def test_the_gradient_is_that_of_the_value_and_spares_the_bank(form: SameClass) -> None:
    features, bank = FEATURES.clone().requires_grad_(), BANK.clone().requires_grad_()
    bank_contrast(features, LABELS, bank, BANK_LABELS, 0.5, form, FILLED).backward()
    assert bank.grad is None and features.grad is not None
    assert torch.autograd.gradcheck(
        lambda f: bank_contrast(f, LABELS, BANK, BANK_LABELS, 0.5, form, FILLED), (features,), fast_mode=True
    )


def at(*angles: float) -> Tensor:
    angle = torch.tensor(angles, dtype=torch.float64)
    return torch.stack([angle.cos(), angle.sin()], dim=1)


def test_an_entry_that_comes_closer_to_its_class_costs_nothing_or_is_welcome_unless_it_repels() -> None:
    features, labels, entry_label = at(0.0, 0.4), torch.tensor([0, 0]), torch.tensor([0])
    change = {
        form: float(
            bank_contrast(features, labels, at(-0.5), entry_label, 1.0, form)
            - bank_contrast(features, labels, at(-0.6), entry_label, 1.0, form)
        )
        for form in FORMS
    }
    assert change["attract"] < change["ignore"] == 0 < change["repel"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 2])
def test_small_batches_of_one_class_have_a_finite_value_and_gradient(form: SameClass, count: int) -> None:
    features = FEATURES[:1].repeat(count, 1).float().requires_grad_()
    bank = features.detach().repeat(3, 1)
    labels, bank_labels = torch.zeros(count, dtype=torch.long), torch.zeros(3 * count, dtype=torch.long)
    value = bank_contrast(features, labels, bank, bank_labels, 1e-3, form)
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        value.backward()
    assert value.isfinite() and features.grad is not None and features.grad.isfinite().all()


@pytest.mark.parametrize("form", FORMS)
def test_no_value_or_shape_depends_on_the_data(form: SameClass) -> None:
    f, y, b, c, filled = (tensor.to("meta") for tensor in (FEATURES, LABELS, BANK, BANK_LABELS, FILLED))
    assert bank_contrast(f, y, b, c, 0.07, form, filled).shape == ()
