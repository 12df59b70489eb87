"""Augmented views against per-pixel twins, and what every view promises."""

import colorsys
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedshot.errors import UserError
from fedshot.local import views


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def photographs(count: int, channels: int = 3, height: int = 12, width: int = 12, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (count, channels, height, width), generator=generator(seed), dtype=torch.uint8)


def per_pixel(pixels: Tensor, change: list[object]) -> Tensor:
    """Each image with its own function from (r, g, b) to (r, g, b) applied to every pixel."""
    out = pixels.clone()
    for i, function in enumerate(change):
        for y in range(pixels.shape[2]):
            for x in range(pixels.shape[3]):
                out[i, :, y, x] = torch.tensor(function(*pixels[i, :, y, x].tolist()))  # type: ignore[operator]
    return out


# Random colours, then the corners and edges of the colour cube, then greys: where a hue formula breaks.
COLOURS = torch.cat(
    (
        photographs(2, height=8, width=8) / 255,
        torch.cartesian_prod(*[torch.tensor([0.0, 0.25, 0.5, 1.0])] * 3).T.reshape(1, 3, 8, 8),
        torch.linspace(0, 1, 64).view(1, 1, 8, 8).expand(1, 3, 8, 8),
    )
)


@pytest.mark.parametrize("turn", [-0.1, -0.03, 0.0, 0.07, 0.1, 0.5, 0.9])
def test_hue_is_shifted_as_colorsys_does(turn: float) -> None:
    def twin(r: float, g: float, b: float) -> tuple[float, float, float]:
        h, s, v = colorsys.rgb_to_hsv(r, g, b)
        return colorsys.hsv_to_rgb((h + turn) % 1.0, s, v)

    shifted = views.shift_hue(COLOURS, torch.full((4,), turn))
    torch.testing.assert_close(shifted, per_pixel(COLOURS, [twin] * 4), rtol=0, atol=2e-6)


def test_brightness_contrast_and_saturation_are_their_formulas_with_a_factor_a_sample() -> None:
    factors = torch.tensor([0.6, 1.0, 1.4, 1.2])

    def clamp(value: float) -> float:
        return min(max(value, 0.0), 1.0)

    def luma(r: float, g: float, b: float) -> float:
        return 0.2989 * r + 0.587 * g + 0.114 * b

    def brighter(f: float) -> object:
        return lambda *rgb: [clamp(f * c) for c in rgb]

    def more_saturated(f: float) -> object:
        return lambda *rgb: [clamp(f * c + (1 - f) * luma(*rgb)) for c in rgb]

    def more_contrast(f: float, image: Tensor) -> object:
        mean = sum(luma(*image[:, y, x].tolist()) for y in range(8) for x in range(8)) / 64
        return lambda *rgb: [clamp(f * c + (1 - f) * mean) for c in rgb]

    for ours, twins in (
        (views.adjust_brightness, [brighter(f) for f in factors.tolist()]),
        (views.adjust_saturation, [more_saturated(f) for f in factors.tolist()]),
        (views.adjust_contrast, [more_contrast(f, i) for f, i in zip(factors.tolist(), COLOURS, strict=True)]),
    ):
        torch.testing.assert_close(ours(COLOURS, factors), per_pixel(COLOURS, twins), rtol=0, atol=1e-6)


def test_contrast_of_one_channel_is_about_its_own_mean() -> None:
    pixels = torch.tensor([0.2, 0.4, 0.6, 0.8]).view(1, 1, 2, 2)
    expected = torch.tensor([0.35, 0.45, 0.55, 0.65]).view(1, 1, 2, 2)
    torch.testing.assert_close(views.adjust_contrast(pixels, torch.tensor([0.5])), expected)


def test_neutral_parameters_are_the_identity() -> None:
    pixels = photographs(3, height=9, width=14) / 255
    whole = torch.tensor([0.0, 0.0, 14.0, 9.0])[:, None].expand(4, 3)
    one, none = torch.ones(3), torch.zeros(3)
    torch.testing.assert_close(views.crop(pixels, whole, torch.zeros(3, dtype=torch.bool)), pixels, rtol=0, atol=2e-6)
    torch.testing.assert_close(views.place(pixels, none, one, torch.zeros(2, 3)), pixels, rtol=0, atol=2e-6)
    torch.testing.assert_close(views.shift_hue(pixels, none), pixels, rtol=0, atol=2e-6)
    for adjust in (views.adjust_brightness, views.adjust_contrast, views.adjust_saturation):
        assert torch.equal(adjust(pixels, one), pixels)


def test_a_mirrored_crop_is_flipped_and_its_neighbour_is_not() -> None:
    pixels = photographs(2, height=9, width=14) / 255
    whole = torch.tensor([0.0, 0.0, 14.0, 9.0])[:, None].expand(4, 2)
    seen = views.crop(pixels, whole, torch.tensor([True, False]))
    torch.testing.assert_close(seen[0], pixels[0].flip(2), rtol=0, atol=2e-6)
    torch.testing.assert_close(seen[1], pixels[1], rtol=0, atol=2e-6)


def test_a_crop_is_its_box_cut_out_and_interpolated() -> None:
    pixels = photographs(4, height=16, width=20) / 255
    boxes = [(3, 2, 10, 8), (0, 0, 7, 16), (13, 9, 7, 7), (5, 5, 1, 1)]  # left, top, width, height
    mirrored = torch.tensor([False, True, False, False])
    seen = views.crop(pixels, torch.tensor(boxes, dtype=torch.float32).T, mirrored)
    for i, (left, top, width, height) in enumerate(boxes):
        cut = pixels[i : i + 1, :, top : top + height, left : left + width]
        expected = F.interpolate(cut, size=(16, 20), mode="bilinear", align_corners=False)
        expected = expected.flip(3) if mirrored[i] else expected
        torch.testing.assert_close(seen[i : i + 1], expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (8, 8), (20, 50)])
def test_boxes_lie_in_the_image_and_cover_the_stated_range(height: int, width: int) -> None:
    left, top, across, down = views.draw_boxes(torch.rand(4, 4000, generator=generator()), height, width)
    assert (left >= 0).all() and (top >= 0).all()
    assert (left + across <= width).all() and (top + down <= height).all()
    area = across * down / (height * width)
    assert area.min() < 0.25
    # Rounded to pixels, a side is off by at most a half.
    assert ((across + 0.5) * (down + 0.5) >= 0.2 * height * width).all()
    if height == width:
        assert ((across - 0.5) / (down + 0.5) <= 4 / 3).all() and ((across + 0.5) / (down - 0.5) >= 3 / 4).all()
        assert area.max() > 0.95 and float(area.mean()) == pytest.approx(0.58, abs=0.04)
        assert float((across > down).float().mean() - (across < down).float().mean()) == pytest.approx(0, abs=0.05)
    for start, room in ((left, width - across), (top, height - down)):
        wide = room > 2
        assert ((start == 0) & wide).any() and ((start == room) & wide).any()


def test_place_turns_shifts_and_scales_as_said() -> None:
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 2, 6] = 1.0  # two rows above and two columns right of the centre
    zero, one = torch.zeros(1), torch.ones(1)
    turned = views.place(image, torch.tensor([math.pi / 2]), one, torch.zeros(2, 1))
    torch.testing.assert_close(turned, image.rot90(1, (2, 3)), rtol=0, atol=1e-5)
    moved = views.place(image, zero, one, torch.tensor([[1 / 9], [2 / 9]]))  # one column right, two rows down
    torch.testing.assert_close(moved, image.roll((2, 1), (2, 3)), rtol=0, atol=1e-5)
    enlarged = views.place(image, zero, torch.tensor([2.0]), torch.zeros(2, 1))
    assert float(enlarged[0, 0, 0, 8]) == pytest.approx(1.0, abs=1e-5)  # twice as far from the centre
    assert float(enlarged.sum()) > 1.5


def test_place_keeps_right_angles_of_oblong_images() -> None:
    image = torch.zeros(1, 1, 8, 16)
    image[0, 0, 3:5, 4:12] = 1.0  # a bar 8 long and 2 high
    turned = views.place(image, torch.tensor([math.pi / 2]), torch.ones(1), torch.zeros(2, 1))
    expected = torch.zeros(1, 1, 8, 16)
    expected[0, 0, :, 7:9] = 1.0
    torch.testing.assert_close(turned, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("ground", [0.0, 0.3, 1.0])
def test_what_comes_in_from_outside_has_the_colour_of_the_corners(ground: float) -> None:
    image = torch.full((1, 1, 9, 9), ground)
    image[0, 0, :, 4] = 1 - ground  # a stroke from edge to edge
    shifted = views.place(image, torch.zeros(1), torch.ones(1), torch.tensor([[0.0], [3 / 9]]))
    torch.testing.assert_close(shifted[0, 0, :3], torch.full((3, 9), ground), rtol=0, atol=1e-5)
    torch.testing.assert_close(shifted[0, 0, 3:], image[0, 0, 3:], rtol=0, atol=1e-5)


@pytest.mark.parametrize("recipe", ["natural", "characters"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_view_has_the_shape_of_the_image_and_pixels_in_range(recipe: str, channels: int) -> None:
    images = photographs(50, channels, height=10, width=13)
    images[:2] = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    before = images.clone()
    seen = views.augment(images, recipe, generator())  # type: ignore[arg-type]
    assert seen.shape == images.shape and seen.dtype == torch.float32
    assert seen.min() >= 0 and seen.max() <= 1
    assert torch.equal(images, before)


@pytest.mark.parametrize("recipe", ["natural", "characters"])
def test_every_sample_draws_for_itself(recipe: str) -> None:
    images = photographs(1).expand(40, -1, -1, -1)
    seen = views.augment(images, recipe, generator())  # type: ignore[arg-type]
    gaps = torch.cdist(seen.flatten(1), seen.flatten(1)) + torch.eye(40)
    assert gaps.min() > 0.01


@pytest.mark.parametrize("recipe", ["natural", "characters"])
def test_a_view_depends_on_the_generator_alone(recipe: str) -> None:
    images = photographs(8)
    torch.manual_seed(1)
    first = views.augment(images, recipe, generator(7))  # type: ignore[arg-type]
    torch.manual_seed(2)
    source = generator(7)
    assert torch.equal(views.augment(images, recipe, source), first)  # type: ignore[arg-type]
    assert (views.augment(images, recipe, source) - first).abs().mean() > 0.01  # type: ignore[arg-type]


@pytest.mark.parametrize("recipe", ["natural", "characters"])
def test_blocks_do_not_show(recipe: str) -> None:
    """A batch is worked in blocks; the same draws on the whole batch at once give the same view."""
    images = photographs(300, height=32, width=32)
    count, view = views.RECIPES[recipe]
    whole = view(images, torch.rand(count, 300, generator=generator(3)))
    assert torch.equal(views.augment(images, recipe, generator(3)), whole)  # type: ignore[arg-type]


def test_the_stated_parts_of_natural_views_are_grey_mirrored_and_untouched_in_colour() -> None:
    count = 3000
    image = torch.zeros(3, 8, 8, dtype=torch.uint8)
    image[0] = torch.arange(8) * 20 + 50  # red grows to the right
    image[1], image[2] = 80, 20
    seen = views.augment(image.expand(count, -1, -1, -1), "natural", generator())
    is_grey = (seen.amax(1) - seen.amin(1)).amax((1, 2)) < 1e-6
    assert is_grey.float().mean() == pytest.approx(0.2, abs=0.03)
    coloured = seen[~is_grey]
    mirrored = coloured[:, 0, :, 0].mean(1) > coloured[:, 0, :, -1].mean(1)
    assert mirrored.float().mean() == pytest.approx(0.5, abs=0.04)
    same_colours = (coloured[:, 2] - 20 / 255).abs().amax((1, 2)) < 1e-5
    assert same_colours.float().mean() == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("channels", [1, 3])
def test_of_normalised_pixels_jitter_keeps_what_lies_in_the_unit_interval(channels: int) -> None:
    """Factors of 1, which torchvision clamps all the same; images that are not jittered keep all, grey or not."""
    pixels = 2 * torch.randn(4, channels, 9, 9, generator=generator())
    draws = torch.full((11, 4), 0.5)
    draws[5] = torch.tensor([0.1, 0.1, 0.9, 0.9])  # jittered below 0.8
    draws[10] = torch.tensor([0.5, 0.1, 0.5, 0.1])  # grey below 0.2
    cut = views.crop(pixels, views.draw_boxes(draws[:4], 9, 9), draws[4] < 0.5)
    luma = (torch.tensor([0.2989, 0.587, 0.114]).view(3, 1, 1) * cut).sum(1, keepdim=True) if channels == 3 else cut
    seen = views.natural_of_normalised(pixels, draws)
    torch.testing.assert_close(seen[0], cut[0].clamp(0, 1), rtol=0, atol=2e-6)
    assert (seen[0] == 0).float().mean() > 0.3
    assert torch.equal(seen[2], cut[2]) and seen[2].min() < -1
    torch.testing.assert_close(seen[3], luma[3].expand_as(seen[3]))
    if channels == 3:
        assert (seen[1].amax(0) - seen[1].amin(0)).max() < 1e-6 and seen[1].min() >= 0


def test_characters_are_never_mirrored() -> None:
    corner = torch.zeros(1, 16, 16, dtype=torch.uint8)
    corner[0, 2:7, 2:7] = 255
    seen = views.augment(corner.expand(500, -1, -1, -1), "characters", generator())
    quarters = F.adaptive_avg_pool2d(seen, 2).flatten(1)  # upper left, upper right, lower left, lower right
    assert (quarters[:, 0] > 2 * quarters[:, 1:].amax(1)).all()
    glyph = torch.zeros(1, 16, 16, dtype=torch.uint8)
    glyph[0, 2:14, 4:6] = glyph[0, 2:4, 4:12] = glyph[0, 7:9, 4:10] = 255  # the letter F
    seen = views.augment(glyph.expand(500, -1, -1, -1), "characters", generator()).flatten(1)
    centred = F.normalize(seen - seen.mean(1, keepdim=True), dim=1)
    upright, mirrored = ((centred @ F.normalize(g.float().flatten(), dim=0)).mean() for g in (glyph, glyph.flip(2)))
    assert upright > mirrored + 0.2


def test_characters_keep_the_hue() -> None:
    image = torch.tensor([200, 100, 50], dtype=torch.uint8).view(3, 1, 1).expand(3, 8, 8)
    seen = views.augment(image.expand(200, -1, -1, -1), "characters", generator())
    brightest = seen.mean(dim=(2, 3))
    assert (brightest[:, 0] > brightest[:, 1]).all() and (brightest[:, 1] > brightest[:, 2]).all()
    torch.testing.assert_close(seen.std(dim=(2, 3)), torch.zeros(200, 3), rtol=0, atol=1e-5)


def test_an_unknown_recipe_is_a_user_error() -> None:
    with pytest.raises(UserError, match="unknown augmentation 'naturl': did you mean 'natural'"):
        views.augment(photographs(1), "naturl", generator())  # type: ignore[arg-type]
