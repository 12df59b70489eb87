"""Common features: the same for everybody, made of nobody's data; and a client's statistics of them."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedshot.local.common import common_statistics
from fedshot.models import common
from fedshot.models.common import CommonFeatures, common_width
from fedshot.models.procedural import dead_leaves
from fedshot.sections import ROUTING
from fedshot.symmetric import pack_lower, unpack_lower, unpack_symmetric

SHAPES = [(1, 8, 8), (3, 8, 12), (1, 28, 16)]


def draw(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pixels_of(shape: tuple[int, int, int], count: int) -> Tensor:
    """Smooth noise in [0, 1]."""
    channels, height, width = shape
    coarse = torch.rand(count, channels, 4, 4, generator=draw())
    return functional.interpolate(coarse, (height, width), mode="bilinear")


def test_dead_leaves_are_images_that_the_generator_alone_decides() -> None:
    before = torch.get_rng_state()
    one, same, other = (dead_leaves(20, 16, 3, draw(seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert one.shape == (20, 3, 16, 16) and one.min() >= 0 and one.max() <= 1
    assert one.std(0).min() > 0.05  # they differ everywhere
    left, right = one[..., :-1].flatten(), one[..., 1:].flatten()
    assert torch.corrcoef(torch.stack([left, right]))[0, 1] > 0.7  # and have surfaces, unlike noise


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_features_are_the_same_for_everybody(shape: tuple[int, int, int]) -> None:
    pixels, found = pixels_of(shape, 4), []
    for seed in (1, 2):
        common._banks.cache_clear()
        torch.manual_seed(seed)  # of whatever run
        before = torch.get_rng_state()
        found.append(CommonFeatures(shape, 64, mirrored=False)(pixels))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*found)
    assert found[0].shape == (4, 64) and found[0].isfinite().all() and found[0].min() >= 0
    assert found[0].std(0).mean() > 0.01  # and tell images apart


def naive(module: CommonFeatures, pixels: Tensor) -> Tensor:
    """The features of images patch by patch, in double precision."""
    rows = []
    for image in pixels.double():
        parts = []
        for number, shrink in enumerate(module._shrinks):
            filters = module.get_buffer(f"filters_{number}").double().flatten(1)  # (M, n)
            side = module.get_buffer(f"filters_{number}").shape[2]
            scaled = functional.avg_pool2d(image, shrink)
            height, width = (length - side + 1 for length in scaled.shape[1:])
            responses = torch.zeros(2, len(filters), height, width, dtype=torch.float64)
            for y in range(height):
                for x in range(width):
                    patch = scaled[:, y : y + side, x : x + side].flatten()
                    patch = (patch - patch.mean()) / (patch.var() + (10 / 255) ** 2).sqrt()
                    like = filters @ patch + module.get_buffer(f"offset_{number}")
                    like = like / (like.square().mean() + 1e-3).sqrt()
                    responses[:, :, y, x] = torch.stack([(like - 0.5).clamp(min=0), (-like - 0.5).clamp(min=0)])
            up, left = -(-height // 2), -(-width // 2)  # quarters overlap where a side is odd
            quarters = [
                responses[..., rows_, columns].mean((2, 3))
                for rows_ in (slice(up), slice(height - up, None))
                for columns in (slice(left), slice(width - left, None))
            ]
            parts.append(torch.stack(quarters, 2).flatten())
        rows.append(torch.cat(parts))
    return torch.stack(rows)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 12), (1, 17, 16)], ids=str)
@pytest.mark.parametrize("mirrored", [False, True])
def test_features_are_their_definition(shape: tuple[int, int, int], mirrored: bool) -> None:
    module, pixels = CommonFeatures(shape, 64, mirrored), pixels_of(shape, 3)
    expected = naive(module, pixels)
    if mirrored:
        expected = (expected + naive(module, pixels.flip(3))) / 2
    torch.testing.assert_close(module(pixels).double(), expected.sqrt(), rtol=1e-3, atol=2e-3)


def test_a_mirror_matters_only_where_the_task_says_so() -> None:
    pixels = pixels_of((1, 8, 8), 5)
    plain, mirrored = (CommonFeatures((1, 8, 8), 64, mirrored=m) for m in (False, True))
    torch.testing.assert_close(mirrored(pixels), mirrored(pixels.flip(3)))
    assert not torch.allclose(plain(pixels), plain(pixels.flip(3)), atol=0.05)


def test_brightness_does_not_matter() -> None:
    module, pixels = CommonFeatures((1, 8, 8), 64, mirrored=False), pixels_of((1, 8, 8), 5)
    torch.testing.assert_close(module(pixels * 0.5), module(pixels * 0.5 + 0.3), rtol=1e-2, atol=5e-3)


def test_large_images_are_averaged_down() -> None:
    pixels = pixels_of((1, 64, 96), 3)
    small = CommonFeatures((1, 32, 32), 64, mirrored=False)(functional.avg_pool2d(pixels, (2, 3)))
    torch.testing.assert_close(CommonFeatures((1, 64, 96), 64, mirrored=False)(pixels), small)


def test_memory_is_bounded_and_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module, pixels = CommonFeatures((1, 8, 8), 64, mirrored=False), pixels_of((1, 8, 8), 7)
    whole, parts = module(pixels), list[int]()
    of = module._of
    monkeypatch.setattr(module, "_of", lambda part: parts.append(len(part)) or of(part))
    monkeypatch.setitem(common._FLOATS_AT_ONCE, "cpu", 2 * 2 * 8 * 64)
    torch.testing.assert_close(module(pixels), whole)
    assert parts == [2, 2, 2, 1]


@pytest.mark.parametrize("classes", [10, 100])
def test_statistics_take_the_room_that_there_is(classes: int) -> None:
    room = 1_000_000

    def size(width: int) -> int:
        return 4 * width + 2 * classes * width + 2 * width * (width + 1) // 2

    width = common_width(room, classes)
    assert width % 8 == 0
    assert size(width) <= room < size(width + 8)
    assert common_width(-(10**9), classes) == 16  # which two filters give


def test_symmetric_matrices_travel_as_one_triangle() -> None:
    matrix = torch.randn(7, 7, generator=draw())
    matrix = matrix + matrix.T
    packed = pack_lower(matrix)
    assert packed.shape == (28,)
    assert torch.equal(unpack_symmetric(packed, 7), matrix)


@pytest.fixture
def shares() -> Iterator[tuple[Tensor, Tensor]]:
    images = (pixels_of((1, 8, 8), 60) * 255).byte()
    yield images, torch.arange(60) % 3 * 2  # nothing of classes 1 and 3


def test_statistics_are_class_means_and_the_covariance_within(
    shares: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = shares
    monkeypatch.setattr("fedshot.local.common._CHUNK", 25)
    look = CommonFeatures((1, 8, 8), 64, mirrored=False)
    found, seen = common_statistics(images, labels, 5, look), look(images / 255).double()
    means, within = torch.zeros(5, 64, dtype=torch.float64), torch.zeros(64, 64, dtype=torch.float64)
    for c in (0, 2, 4):
        means[c] = seen[labels == c].mean(0)
    for f, y in zip(seen, labels, strict=True):
        within += torch.outer(f - means[y], f - means[y]) / 60
    torch.testing.assert_close(found["centre"].double(), seen.mean(0), rtol=1e-5, atol=1e-6)
    told = found["means"].double() + seen.mean(0)
    torch.testing.assert_close(told[[0, 2, 4]], means[[0, 2, 4]], rtol=1e-4, atol=1e-4)
    assert (told - means)[[0, 2, 4]].abs().mean() < 0.2 * (means.half() - means)[[0, 2, 4]].abs().mean()
    assert not found["means"][[1, 3]].any()
    assert found["means"].dtype == found["root"].dtype == torch.float16
    root = unpack_lower(found["root"], 64).double()
    torch.testing.assert_close(root @ root.T, within, rtol=2e-3, atol=5e-5)


class FarFromZero(torch.nn.Module):
    """Features whose mean is far larger than their deviation, as an encoder's that was hardly trained."""

    def __init__(self, mean: float, deviation: float) -> None:
        super().__init__()
        self.plain, self.mean, self.deviation = CommonFeatures((1, 8, 8), 64, mirrored=False), mean, deviation
        self.width = 64

    def forward(self, pixels: Tensor) -> Tensor:
        return self.mean + self.deviation * self.plain(pixels).double()


@pytest.mark.parametrize("mean", [4097.3, 1e6 + 0.3])
def test_the_covariance_is_that_of_features_that_lie_around_zero(mean: float, shares: tuple[Tensor, Tensor]) -> None:
    images, labels = shares
    near, far = (common_statistics(images, labels, 5, FarFromZero(m, 0.25)) for m in (0.0, mean))
    assert torch.equal(far["root"], near["root"])
    torch.testing.assert_close(far["means"], near["means"], rtol=0, atol=1e-6)
    torch.testing.assert_close(far["centre"].double(), near["centre"].double() + mean, rtol=1e-7, atol=0)


@pytest.mark.parametrize("count", [2, 7, 50, 3000])
def test_a_client_with_one_image_again_and_again_is_not_refused(count: int, shares: tuple[Tensor, Tensor]) -> None:
    images = shares[0][:1].expand(count, -1, -1, -1)
    look = CommonFeatures((1, 8, 8), 64, mirrored=False)
    found = common_statistics(images, torch.zeros(count, dtype=torch.int64), 5, look)
    assert ROUTING["common"].complaint(found, torch.tensor([True, False, False, False, False])) is None
