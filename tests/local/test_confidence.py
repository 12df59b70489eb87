"""The temperature of a client and its error, found on few images and on many."""

import pytest
import torch
from torch import Tensor

from fedshot.local.confidence import held_out_error, temperature
from fedshot.sections import ROUTING

ALL = torch.ones(5, dtype=torch.bool)


def answers(scale: float, count: int) -> tuple[Tensor, Tensor]:
    """Logits of images whose classes are drawn by softmax(logits / scale)."""
    draw = torch.Generator().manual_seed(3)
    logits = 2 * torch.randn(count, 5, generator=draw)
    return scale * logits, torch.multinomial(logits.softmax(1), 1, generator=draw).flatten()


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 6.0])
def test_the_temperature_is_the_scale_of_the_logits(scale: float) -> None:
    assert temperature(*answers(scale, 4000), ALL).item() == pytest.approx(scale, rel=0.15)


def test_two_images_that_are_right_do_not_make_a_model_sure() -> None:
    logits = torch.tensor([[9.0, 0, 0, 0, 0], [0, 9, 0, 0, 0]])
    assert 0.5 < temperature(logits, torch.tensor([0, 1]), ALL).item() <= 1.1


def test_classes_that_are_not_held_do_not_count() -> None:
    logits, labels = answers(0.3, 2000)
    held = torch.tensor([True, True, True, False, False])
    mine = labels < 3
    expected = temperature(logits[mine][:, :3], labels[mine], held[:3])
    logits[:, 3:] = 50.0
    assert torch.equal(temperature(logits, labels, held), expected)


def complaint(temperature: float, error: float) -> str | None:
    told = {"temperature": torch.tensor([temperature]), "error": torch.tensor([error])}
    return ROUTING["reliability"].complaint(told, ALL)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_an_impossible_temperature_is_refused(value: float) -> None:
    assert complaint(value, 0.1) == "temperature is 0 or less"
    assert complaint(0.2, 0.1) is None


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_an_impossible_error_is_refused(value: float) -> None:
    assert complaint(0.2, value) == "error is not between 0 and 1"
    assert complaint(0.2, 0.0) is complaint(0.2, 1.0) is None


def test_an_error_is_one_among_the_classes_that_are_held() -> None:
    logits, labels = answers(1.0, 200)
    held = torch.tensor([True, True, True, False, False])
    mine = labels < 3
    wrong = int((logits[mine, :3].argmax(1) != labels[mine]).sum())
    expected = (wrong + 1) / (int(mine.sum()) + 2)
    assert 0.2 < expected < 0.6
    logits[:, 3:] = 50.0
    assert held_out_error(logits[mine], labels[mine], held).item() == pytest.approx(expected)


def test_few_images_make_nobody_perfect() -> None:
    sure = 9 * torch.eye(5)
    assert held_out_error(sure[:1], torch.tensor([0]), ALL).item() == pytest.approx(1 / 3)
    assert held_out_error(sure.repeat(200, 1), torch.arange(5).repeat(200), ALL).item() == pytest.approx(1 / 1002)
