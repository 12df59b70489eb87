"""A model that looks at an image and at its mirror."""

import pytest
import torch

from fedshot.fusion.outputs import outputs_of
from fedshot.models import Classifier, PrototypeHead, build
from fedshot.models.mirrored import MirroredClassifier
from fedshot.task import Task


@pytest.fixture(scope="module")
def plain(task: Task) -> Classifier:
    """An untrained model whose BatchNorm saw noise."""
    made = build(task, PrototypeHead).train()
    with torch.no_grad():
        made(torch.rand(32, *task.shape))
    return made.eval().requires_grad_(False)


def test_its_logits_are_the_mean_of_both_and_no_mirror_changes_them(plain: Classifier, task: Task) -> None:
    images = torch.rand(7, *task.shape)
    mirrored = images[..., torch.arange(task.shape[2] - 1, -1, -1)]
    model = MirroredClassifier(plain)
    torch.testing.assert_close(model(images), (plain(images) + plain(mirrored)) / 2)
    torch.testing.assert_close(model(images), model(mirrored))
    assert not torch.allclose(model(images), plain(images))


def test_it_can_be_asked_as_any_model(plain: Classifier, task: Task) -> None:
    images, model = torch.rand(5, *task.shape), MirroredClassifier(plain)
    said = outputs_of((model,), images)
    assert said.features.shape == (1, 5, model.width) and model.width == 2 * plain.width
    torch.testing.assert_close(said.logits[0], model(images))
    assert list(model.state_dict()) == list(plain.state_dict())
