"""Our GPU kernels against their plain twins, run by Triton's interpreter where Triton is but no GPU.

On a GPU tests/test_gpu.py shows the same for the compiled kernels.
"""

import copy
import importlib.util
import os
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from fedshot.local.forward import encode, inputs_of
from fedshot.models.layers import basic_block
from fedshot.models.resnet import ResNet
from fedshot.task import Task

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None or torch.cuda.is_available(), reason="needs Triton, and no GPU"
)


@pytest.fixture(scope="module", autouse=True)
def interpreted() -> None:
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined


def drawn(shape: tuple[int, ...], seed: int) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return values.contiguous(memory_format=torch.channels_last)


SHAPES = [(3, 64, 5, 7), (2, 20, 3, 3), (6, 130, 16, 16), (4, 512, 1, 1)]  # batch, channels, height, width


@pytest.mark.parametrize(("shape", "added", "relu"), list(product(SHAPES, (False, True), (False, True))))
def test_norm_add_relu_is_torch_s(shape: tuple[int, ...], added: bool, relu: bool) -> None:
    from fedshot.kernels.norm import norm_add_relu

    x, other, slope = 2 * drawn(shape, 1) + 3, drawn(shape, 2), drawn(shape, 3)
    found = []
    for fused in (False, True):
        norm = nn.BatchNorm2d(shape[1])
        with torch.no_grad():
            norm.weight.copy_(torch.linspace(0.5, 2, shape[1]))
            norm.bias.copy_(torch.linspace(-1, 1, shape[1]))
        inputs = [t.clone().requires_grad_() for t in (x, other)]
        if fused:
            y = norm_add_relu(inputs[0], norm, inputs[1] if added else None, relu)
        else:
            y = norm(inputs[0]) + (inputs[1] if added else 0)
            y = y.relu() if relu else y
        (y * slope).sum().backward()
        grads = [t.grad for t in (*inputs[: 1 + added], norm.weight, norm.bias)]
        found.append([y.detach(), *grads, norm.running_mean, norm.running_var, norm.num_batches_tracked])
    for ours, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-4)


def test_moments_survive_a_mean_far_from_0() -> None:
    from fedshot.kernels.norm import norm_add_relu

    x = (drawn((8, 16, 12, 12), 1) + 3000).contiguous(memory_format=torch.channels_last)
    y = norm_add_relu(x, nn.BatchNorm2d(16), relu=False)
    torch.testing.assert_close(y, nn.BatchNorm2d(16)(x), rtol=0, atol=5e-3)


def test_a_network_of_residual_blocks_has_the_same_gradients() -> None:
    torch.manual_seed(1)
    network = ResNet(3, "batch", basic_block, (2, 2), (16, 32))
    images, found = drawn((6, 3, 8, 8), 4), []
    for fused in (False, True):
        model = copy.deepcopy(network)
        features = encode(model, images, "fp32", fused)
        (features * torch.linspace(-1, 1, features.numel()).view_as(features)).sum().backward()
        found.append([features.detach(), *[p.grad for p in model.parameters()], *model.buffers()])
    for ours, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [(32, 32), (8, 12)])
@pytest.mark.parametrize("plain", [False, True])
def test_natural_views_are_the_recipe_s(size: tuple[int, int], plain: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (10, 3, *size), dtype=torch.uint8, generator=generator)
    images[0], images[1], images[2] = images[0, :1], 0, 255  # greys, black, white: where a hue formula breaks
    draws = torch.rand(11, 20, generator=generator)
    task = Task(10, (3, *size), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3), "cnn")
    ours, theirs = (inputs_of(images, draws, plain, task, fused) for fused in (True, False))
    assert len(ours) == 20 + 10 * plain and ours.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)
