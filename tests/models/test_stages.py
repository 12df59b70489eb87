"""Every encoder is the composition of its stages, and encoders can share the first of them."""

import pytest
import torch
from torch import Tensor

from fedshot.models import ENCODERS
from fedshot.models.encoder import Encoder
from fedshot.models.split import Base, SplitEncoder

STAGES = {"cnn": 6, "resnet18": 5, "resnet34": 5, "resnet50": 5, "mobilenet_v2": 9, "vit": 10}


def make(name: str, seed: int = 1, side: int = 28) -> Encoder:
    torch.manual_seed(seed)
    return ENCODERS[name]((1, side, side), "batch").eval()


def images(side: int = 28) -> Tensor:
    return torch.randn(2, 1, side, side, generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_stage_after_stage_is_the_forward_pass(name: str) -> None:
    encoder, maps = make(name), images()
    stages = encoder.in_order()
    assert len(stages) == STAGES[name]
    for stage in stages:
        maps = stage.run(maps)
    assert torch.equal(maps, encoder(images()))
    assert maps.shape == (2, encoder.width)


@pytest.mark.parametrize("name", ENCODERS)
def test_every_state_entry_belongs_to_one_stage(name: str) -> None:
    encoder = make(name)
    stages = encoder.in_order()
    for entry in encoder.state_dict():
        assert sum(stage.holds(entry) for stage in stages) == 1, entry
    assert all(any(stage.holds(entry) for entry in encoder.state_dict()) for stage in stages)
    assert encoder.entries(0) == ()
    assert encoder.entries(len(stages)) == tuple(encoder.state_dict())


@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_a_stage_is_moved_by_its_own_entries_alone(name: str) -> None:
    """What the first two stages make depends on their entries, and on no other."""
    encoder = make(name)
    before, held = encoder.through(images(), 0, 2), set(encoder.entries(2))
    state = encoder.state_dict()
    encoder.load_state_dict({key: t if key in held else torch.zeros_like(t) for key, t in state.items()})
    assert torch.equal(encoder.through(images(), 0, 2), before)
    encoder.load_state_dict({key: torch.zeros_like(t) if key in held else t for key, t in state.items()})
    assert not torch.equal(encoder.through(images(), 0, 2), before)


@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_a_split_encoder_has_the_entries_of_the_base_in_its_first_stages(name: str) -> None:
    one, other = make(name, 1), make(name, 2)
    for stages in (1, 3, STAGES[name]):
        joined = SplitEncoder(Base(one, stages), other)
        whole = make(name, 2)
        whole.load_state_dict({**other.state_dict(), **{key: one.state_dict()[key] for key in one.entries(stages)}})
        assert torch.equal(joined(images()), whole(images()))
        assert joined.width == whole.width
