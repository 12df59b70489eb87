"""The temperature of a client: that of its logits, found on few images and on many."""

import pytest
import torch
from torch import Tensor

from fedshot.local.confidence import temperature
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


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_an_impossible_temperature_is_refused(value: float) -> None:
    assert ROUTING["temperature"].complaint({"temperature": torch.tensor([value])}, ALL) == "temperature is 0 or less"
    assert ROUTING["temperature"].complaint({"temperature": torch.tensor([0.2])}, ALL) is None
