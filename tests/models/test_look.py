"""What everybody sees from the start where clients start from an encoder that was trained before."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedshot.errors import UserError
from fedshot.models import ENCODERS
from fedshot.models.common import CommonFeatures
from fedshot.models.look import FiltersAndEncoder, common_look
from fedshot.models.procedural import dead_leaves
from fedshot.pretrained import Pretrained
from fedshot.task import Task

CPU = torch.device("cpu")


def weights(name: str, shape: tuple[int, int, int], factor: float = 1.0) -> Pretrained:
    """Other weights than any seed draws, and moments of BatchNorm as after a training."""
    generator = torch.Generator().manual_seed(9)
    entries = {
        key: t + torch.rand(t.shape, generator=generator) / 10 if t.is_floating_point() else t
        for key, t in ENCODERS[name](shape, "batch").state_dict().items()
    }
    last = [key for key in entries if key.endswith(("weight", "bias"))][-2:]  # by which all features are multiplied
    return Pretrained("weights", {key: factor * t if key in last else t for key, t in entries.items()}, b"")


@pytest.fixture
def before(task: Task) -> Task:
    return replace(task, pretrained=weights("cnn", task.shape))


def pixels_of(task: Task, count: int) -> Tensor:
    channels, height, width = task.shape
    return dead_leaves(count, max(height, width), channels, torch.Generator().manual_seed(4))[:, :, :height, :width]


def parts(look: object) -> FiltersAndEncoder:
    assert isinstance(look, FiltersAndEncoder)
    return look


def test_without_such_an_encoder_filters_are_all(task: Task) -> None:
    look, pixels = common_look(task, 64, CPU), pixels_of(task, 5)
    assert isinstance(look, CommonFeatures) and look.width == 64
    assert torch.equal(look(pixels), CommonFeatures(task.shape, 64, task.mirrored)(pixels))


@pytest.mark.parametrize("augmentation", ["natural", "characters"])
def test_half_of_the_features_are_the_filters_and_half_the_encoder_s(before: Task, augmentation: str) -> None:
    task = replace(before, augmentation=augmentation)
    look, pixels = parts(common_look(task, 64, CPU)), pixels_of(before, 7)
    found = look(pixels)
    assert found.shape == (7, look.width) == (7, 64)
    filters = CommonFeatures(task.shape, 32, mirrored=augmentation == "natural")
    assert torch.equal(found[:, :32], filters(pixels))
    encoder = ENCODERS["cnn"](task.shape, "batch").eval()
    encoder.load_state_dict(dict(task.pretrained.encoder if task.pretrained else {}))
    looks = [pixels, pixels.flip(3)] if augmentation == "natural" else [pixels]
    with torch.no_grad():
        seen = sum(encoder((x - task.mean[0]) / task.std[0]) for x in looks) / len(looks)
    torch.testing.assert_close(found[:, 32:], look.scale * (seen @ look.directions), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(look.directions.T @ look.directions, torch.eye(32), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("width", "seen"), [(16, 8), (368, 184), (1024, 512), (1096, 512)])
def test_an_encoder_has_as_much_room_as_it_needs_and_half_at_most(before: Task, width: int, seen: int) -> None:
    look = parts(common_look(before, width, CPU))
    assert (look.width, look.filters.width, look.directions.shape[1]) == (width, width - seen, seen)
    assert look(pixels_of(before, 2)).shape == (2, width)


def test_with_room_for_a_whole_encoder_all_distances_are_kept(before: Task) -> None:
    task = replace(before, augmentation="characters")
    look, pixels = parts(common_look(task, 1024, CPU)), pixels_of(task, 20)
    with torch.no_grad():
        encoded = look.scale * look.encoder(task.normalise(pixels))
    found = look(pixels)[:, 512:]
    torch.testing.assert_close(torch.cdist(found, found), torch.cdist(encoded, encoded), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("factor", [1e-4, 1.0, 300.0])
def test_the_encoder_varies_as_much_as_the_filters_however_large_its_features_are(task: Task, factor: float) -> None:
    look = parts(common_look(replace(task, pretrained=weights("cnn", task.shape, factor)), 64, CPU))
    assert math.log2(look.scale).is_integer()
    varying = look(pixels_of(task, 400)).var(0)
    assert 1 / 3 < float(varying[:32].mean() / varying[32:].mean()) < 3  # on other images than it was scaled by


def test_everybody_sees_the_same_in_an_image_whatever_is_beside_it(before: Task) -> None:
    pixels = pixels_of(before, 12)
    found = []
    for seed in (1, 2):
        common_look.cache_clear()
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        look = parts(common_look(replace(before, seed=seed), 64, CPU))
        found.append(look(pixels))
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(*found)
    moments = [t.clone() for t in look.encoder.buffers()]
    torch.testing.assert_close(look(pixels[3:4]), found[0][3:4], rtol=1e-4, atol=1e-5)
    assert all(torch.equal(one, other) for one, other in zip(moments, look.encoder.buffers(), strict=True))


@pytest.mark.parametrize("width", [16, 128])
@pytest.mark.parametrize(("name", "shape"), [("mobilenet_v2", (3, 8, 12)), ("vit", (3, 16, 16)), ("cnn", (1, 28, 20))])
def test_other_encoders_and_shapes(name: str, shape: tuple[int, int, int], width: int, task: Task) -> None:
    other = replace(task, shape=shape, encoder=name, mean=(0.5,) * shape[0], std=(0.25,) * shape[0])
    other = replace(other, pretrained=weights(name, shape))
    found = common_look(other, width, CPU)(pixels_of(other, 3))
    assert found.shape == (3, width) and found.isfinite().all()


def test_an_encoder_that_sees_nothing_is_refused(task: Task) -> None:
    whole = weights("cnn", task.shape).encoder
    spoilt = {k: t * 1e38 if k.endswith("norm.weight") else t for k, t in whole.items()}  # finite, features are not
    with pytest.raises(UserError, match="features that are not finite"):
        common_look(replace(task, pretrained=Pretrained("weights", spoilt, b"")), 64, CPU)
