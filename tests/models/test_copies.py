"""Copies of models share nothing that training could change."""

import pytest
import torch

from fedshot.local.anchors import anchors
from fedshot.models import EtfHead, build
from fedshot.models.copies import copy_of, frozen_copy
from fedshot.task import Task


def test_a_copy_says_the_same_and_shares_nothing(task: Task) -> None:
    model = build(task, lambda width, classes: EtfHead(width, anchors("etf", 10, 10, 1).T))
    other, images = copy_of(model), torch.randn(4, *task.shape)
    assert torch.equal(other(images), model(images)) and other.training
    assert [p.requires_grad for p in other.parameters()] == [p.requires_grad for p in model.parameters()]
    other.encoder.stem.register_forward_hook(lambda *_: pytest.fail("a hook of the copy"))
    model(images)
    owned = {t.data_ptr() for t in (*model.parameters(), *model.buffers())}
    assert not owned & {t.data_ptr() for t in (*other.parameters(), *other.buffers())}
    assert all(a.stride() == b.stride() for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_a_frozen_copy_leaves_the_model_in_training(task: Task) -> None:
    model = build(task, lambda width, classes: EtfHead(width, anchors("etf", 10, 10, 1).T))
    still = frozen_copy(model)
    assert not any(module.training for module in still.modules()) and all(module.training for module in model.modules())
    assert not any(p.requires_grad for p in still.parameters()) and all(p.requires_grad for p in model.parameters())
