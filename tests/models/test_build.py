from dataclasses import replace

import pytest
import torch

from fedshot.errors import UserError
from fedshot.models import DualHead, EtfHead, LinearHead, PrototypeHead, build, prototypes_of
from fedshot.task import Task

TASK = Task(classes=3, shape=(1, 8, 8), mean=(0.5,), std=(0.25,), encoder="cnn", seed=4)


def equal(one, two):
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_builds_are_reproducible_and_leave_the_global_state_alone():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    first = build(TASK, DualHead).state_dict()
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(1)
    torch.randn(5)
    assert equal(build(TASK, DualHead).state_dict(), first)


def test_the_seed_moves_encoder_and_head():
    one, two = build(TASK, PrototypeHead), build(replace(TASK, seed=5), PrototypeHead)
    assert not torch.equal(one.encoder.stem.conv.weight, two.encoder.stem.conv.weight)
    assert not torch.equal(one.head.prototypes, two.head.prototypes)


@pytest.mark.parametrize("encoder", ["cnn", "vit"])
def test_methods_with_different_heads_share_the_encoder(encoder):
    task = replace(TASK, encoder=encoder)
    heads = [PrototypeHead, LinearHead, DualHead, lambda width, classes: EtfHead(width, torch.eye(classes))]
    first, *others = (build(task, head).encoder.state_dict() for head in heads)
    assert all(equal(first, other) for other in others)


def test_the_head_does_not_depend_on_how_much_the_encoder_draws():
    batch, group = (build(replace(TASK, norm=norm), PrototypeHead).head.prototypes for norm in ("batch", "group"))
    assert torch.equal(batch, group)
    vit = build(replace(TASK, encoder="vit", shape=(3, 8, 8)), PrototypeHead).head.prototypes
    assert torch.equal(vit, build(replace(TASK, encoder="vit"), PrototypeHead).head.prototypes)


def test_forward_is_the_head_of_the_features():
    model = build(TASK, PrototypeHead).eval()
    images = torch.randn(2, 1, 8, 8)
    assert model.features(images).shape == (2, 512)
    assert torch.equal(model(images), model.head(model.features(images)))
    assert model(images).shape == (2, 3)


def test_prototypes_of():
    single, dual = build(TASK, PrototypeHead), build(TASK, DualHead)
    assert prototypes_of(single) is single.head.prototypes
    assert prototypes_of(dual) is dual.head.prototype.prototypes
    assert prototypes_of(build(TASK, LinearHead)) is None


def test_an_unknown_encoder_is_refused():
    with pytest.raises(UserError, match="unknown encoder 'resnet19': did you mean 'resnet18'"):
        build(replace(TASK, encoder="resnet19"), PrototypeHead)
