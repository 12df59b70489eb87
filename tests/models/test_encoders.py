import time

import pytest
import torch
from torch import nn

from fedshot.errors import UserError
from fedshot.models import ENCODERS, default_encoder

WIDTHS = {"cnn": 512, "resnet18": 512, "resnet34": 512, "resnet50": 2048, "mobilenet_v2": 1280, "vit": 192}
SHAPES = [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 64, 64)]


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ENCODERS)
def test_features_have_the_width_that_the_encoder_states(name, shape):
    encoder = ENCODERS[name](shape, "batch").eval()
    with torch.no_grad():
        features = encoder(torch.randn(2, *shape))
    expected = WIDTHS[name]
    assert encoder.width == expected
    assert features.shape == (2, expected)
    assert features.isfinite().all()
    assert not torch.equal(features[0], features[1])


def test_parameter_counts():
    counts = {name: count(ENCODERS[name]((3, 32, 32), "batch")) for name in ENCODERS}
    assert counts["resnet18"] == 11_168_832
    # torchvision's networks without their last layer; the residual ones have a 7x7 stem there.
    assert counts["resnet34"] == 21_284_672 - 9_408 + 1_728
    assert counts["resnet50"] == 23_508_032 - 9_408 + 1_728
    assert counts["mobilenet_v2"] == 2_223_872
    block = 2 * 2 * 192 + (192 * 576 + 576) + (192 * 192 + 192) + (192 * 768 + 768) + (768 * 192 + 192)
    assert counts["vit"] == 9 * block + (48 * 192 + 192) + 65 * 192 + 192 + 2 * 192
    assert counts["cnn"] < 650_000


@pytest.mark.parametrize("name", [name for name in ENCODERS if name != "vit"])
def test_group_norm_replaces_every_batch_norm(name):
    batch, group = (ENCODERS[name]((3, 32, 32), norm) for norm in ("batch", "group"))
    batch_norms = [module for module in batch.modules() if isinstance(module, nn.BatchNorm2d)]
    group_norms = [module for module in group.modules() if isinstance(module, nn.GroupNorm)]
    assert not any(isinstance(module, nn.BatchNorm2d) for module in group.modules())
    assert len(group_norms) == len(batch_norms) > 0
    assert all(module.num_channels // module.num_groups >= 8 for module in group_norms)
    assert count(group) == count(batch)


def test_vit_has_layer_norm_whatever_the_norm():
    encoders = [ENCODERS["vit"]((1, 8, 8), norm) for norm in ("batch", "group")]
    for encoder in encoders:
        assert not any(isinstance(module, nn.BatchNorm2d | nn.GroupNorm) for module in encoder.modules())
    assert [tuple(p.shape) for p in encoders[0].parameters()] == [tuple(p.shape) for p in encoders[1].parameters()]


@pytest.mark.parametrize("name", ENCODERS)
def test_an_unknown_norm_is_refused(name):
    with pytest.raises(UserError, match="unknown norm 'bacth': did you mean 'batch'"):
        ENCODERS[name]((1, 8, 8), "bacth")


def test_vit_refuses_images_that_patches_do_not_tile():
    with pytest.raises(UserError, match="30x30 images into patches of 4x4"):
        ENCODERS["vit"]((3, 30, 30), "batch")


@pytest.mark.parametrize(("side", "patches"), [(8, 16), (28, 49), (32, 64), (64, 64)])
def test_vit_patches(side, patches):
    assert ENCODERS["vit"]((3, side, side), "batch").positions.shape[1] == patches + 1


@pytest.mark.parametrize(("side", "last"), [(8, 4), (28, 4), (32, 4), (64, 2)])
def test_the_last_map_of_mobilenet_is_not_degenerate(side, last):
    encoder = ENCODERS["mobilenet_v2"]((3, side, side), "batch").eval()
    with torch.no_grad():
        assert encoder.layers(torch.randn(1, 3, side, side)).shape[2:] == (last, last)


def test_convolutions_start_kaiming_fan_out_and_norms_at_one_and_zero():
    encoder = ENCODERS["resnet18"]((3, 32, 32), "batch")
    for module in encoder.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * module.kernel_size[0] ** 2
            assert module.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.1)
            assert module.bias is None
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all() and (module.bias == 0).all()


@pytest.mark.parametrize("name", ["cnn", "mobilenet_v2", "vit"])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_every_parameter_learns(name, norm):
    encoder = ENCODERS[name]((1, 8, 8), norm)
    features = encoder(torch.randn(4, 1, 8, 8))
    (features * torch.randn_like(features)).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in encoder.parameters())


def test_the_input_is_left_as_it_was():
    images = torch.randn(2, 1, 8, 8)
    for name in ENCODERS:
        given = images.clone()
        ENCODERS[name]((1, 8, 8), "batch")(given)
        assert torch.equal(given, images)


def test_cnn_trains_quickly_on_one_core():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        encoder, images, seconds = ENCODERS["cnn"]((1, 8, 8), "batch"), torch.randn(128, 1, 8, 8), []
        for _ in range(10):
            start = time.process_time()
            encoder(images).square().sum().backward()
            seconds.append(time.process_time() - start)
    finally:
        torch.set_num_threads(threads)
    # Of work: about 20 ms, far below what a ResNet-18 takes; waiting for a busy machine does not count.
    assert min(seconds) < 0.15


def test_default_encoder():
    assert [default_encoder(shape) for shape in SHAPES] == ["cnn", "cnn", "resnet18", "resnet18"]
    assert default_encoder((1, 28, 29)) == "resnet18"
