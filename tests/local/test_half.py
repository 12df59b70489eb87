"""bf16 weights made in one pass round as autocast does."""

import copy

import pytest
import torch

from fedshot.local.forward import encode
from fedshot.local.half import HalfWeights
from fedshot.models import ENCODERS


@pytest.mark.parametrize("pull", [0.0, 0.5], ids=["", "with a term that reads the weights"])
@pytest.mark.parametrize("name", ["cnn", "resnet18", "mobilenet_v2", "vit"])
def test_training_steps_are_autocast_s_to_the_last_bit(name: str, pull: float) -> None:
    torch.manual_seed(0)
    autocast = ENCODERS[name]((3, 8, 8), "batch")
    for parameter in autocast.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    ours = copy.deepcopy(autocast)
    half = HalfWeights(ours)
    images = torch.randn(6, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    for _ in range(3):
        for encoder, weights in ((autocast, None), (ours, half)):
            features = encode(encoder, images, "bf16", half=weights)
            encoder.zero_grad()
            loss = (features * torch.linspace(-1, 1, features.numel()).view_as(features)).sum()
            if pull:
                loss = loss + pull * torch.stack([p.square().sum() for p in encoder.parameters()]).sum()
            loss.backward()
            if weights is not None:
                weights.widen_gradients()
            with torch.no_grad():
                for parameter in encoder.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.05 * parameter.grad
    states = zip(autocast.state_dict().values(), ours.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in states)
    assert all(p.dtype == torch.float32 for p in ours.parameters())


def test_an_encoder_that_got_no_gradient_is_left_alone() -> None:
    encoder = ENCODERS["cnn"]((1, 8, 8), "batch")
    half = HalfWeights(encoder)
    half.encode(encoder, torch.randn(2, 1, 8, 8))
    half.widen_gradients()
    assert all(p.grad is None for p in encoder.parameters())
