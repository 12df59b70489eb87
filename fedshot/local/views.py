"""Augmented views of a batch, drawn per sample, on whatever device the batch lies.

uint8 images come in, pixels in [0, 1] go out; normalisation follows, in `Task.normalise`. Every draw of a call comes
from one generator in one `torch.rand`, whose size depends on the batch size alone.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedshot.errors import unknown

Recipe = Literal["natural", "natural_of_normalised", "characters", "none"]


def augment(images: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """One augmented view of each image.

    Args:
        images: (B, channels, H, W) uint8.
        recipe: "natural" for photographs, "characters" where a flip or a colour would change the meaning, "none" where
            anything would: the images as they are.
        generator: on the device of the images.

    Returns:
        Pixels in [0, 1], (B, channels, H, W) float32.
    """
    return view(images, draw(len(images), recipe, generator), recipe)


def draw(samples: int, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """The uniform draws that views of that many samples are made of, (draws a sample, samples)."""
    if recipe not in RECIPES:
        raise unknown("augmentation", recipe, RECIPES)
    return torch.rand(RECIPES[recipe][0], samples, generator=generator, device=generator.device)


def view(images: Tensor, draws: Tensor, recipe: Recipe) -> Tensor:
    """The views that these draws make: a function of tensors alone."""
    _, make = RECIPES[recipe]
    if images.device.type != "cpu":
        return make(images, draws)
    block = max(1, 400_000 // images.shape[1:].numel())  # what fits the cache of a CPU halves the time
    parts = zip(images.split(block), draws.split(block, dim=1), strict=True)
    return torch.cat([make(*part) for part in parts])


def natural(images: Tensor, draws: Tensor) -> Tensor:
    """The recipe of FAFI: random resized crop, flip, colour jitter with probability 0.8, grey with probability 0.2.

    Args:
        images: (B, channels, H, W) uint8.
        draws: uniform in [0, 1), (11, B).

    Crop of area 0.2 to 1 and aspect 3/4 to 4/3 (log-uniform); flip with probability 0.5; brightness, contrast and
    saturation by a factor in [0.6, 1.4], hue by up to 0.1 of a turn. Images that are not RGB get brightness and
    contrast alone.

    Deviations from the torchvision recipe that FAFI names: a sample draws for itself, not the batch for all; a crop
    that does not fit the image is clamped to it instead of drawn again; the colour operations come in the order named
    here instead of a random one.
    """
    return _coloured(_cut(images / 255, draws), draws)


def natural_of_normalised(pixels: Tensor, draws: Tensor) -> Tensor:
    """The same recipe on images that are normalised already, as published code has it for CIFAR-100 and SVHN.

    Args:
        pixels: of zero mean and unit deviation, (B, channels, H, W).
        draws: those of `natural`, (11, B).

    Every colour operation clamps to [0, 1]: what is darker than the mean becomes 0 in the four samples of five whose
    colours are jittered, what is brighter than mean and deviation together becomes 1.
    """
    pixels = _cut(pixels, draws)
    kept = torch.where(_each(draws[10] < 0.2), grey(pixels), pixels) if pixels.shape[1] == 3 else pixels
    return torch.where(_each(_jittered(draws)), _coloured(pixels, draws), kept)


def _cut(pixels: Tensor, draws: Tensor) -> Tensor:
    return crop(pixels, draw_boxes(draws[:4], *pixels.shape[2:]), draws[4] < 0.5)


def _jittered(draws: Tensor) -> Tensor:
    """Whether a sample's colours are changed, (B,)."""
    return draws[5] < 0.8


def _coloured(pixels: Tensor, draws: Tensor) -> Tensor:
    jitter = (2 * draws[6:10] - 1) * _jittered(draws)  # (4, B) in [-1, 1], 0 where the sample keeps its colours
    pixels = adjust_brightness(pixels, 1 + 0.4 * jitter[0])
    pixels = adjust_contrast(pixels, 1 + 0.4 * jitter[1])
    if pixels.shape[1] != 3:
        return pixels
    pixels = adjust_saturation(pixels, 1 + 0.4 * jitter[2])
    pixels = shift_hue(pixels, 0.1 * jitter[3])
    return adjust_saturation(pixels, (draws[10] >= 0.2).float())


def characters(images: Tensor, draws: Tensor) -> Tensor:
    """A mild recipe that keeps a character readable: no flip, no hue, no crop.

    Args:
        images: (B, channels, H, W) uint8.
        draws: uniform in [0, 1), (6, B).

    Rotation by up to 10 degrees, scale 0.9 to 1.1, shift by up to a tenth of either side; brightness and contrast by a
    factor in [0.8, 1.2].
    """
    draws = 2 * draws - 1  # in [-1, 1]
    pixels = place(images / 255, math.radians(10) * draws[0], 1 + 0.1 * draws[1], 0.1 * draws[2:4])
    pixels = adjust_brightness(pixels, 1 + 0.2 * draws[4])
    return adjust_contrast(pixels, 1 + 0.2 * draws[5])


def draw_boxes(draws: Tensor, height: int, width: int) -> Tensor:
    """Crop boxes in whole pixels, (4, B): left, top, width, height, from uniform draws (4, B).

    Area 0.2 to 1 of the image, aspect 3/4 to 4/3, each side clamped to the image.
    """
    side = (height * width * (0.2 + 0.8 * draws[0])).sqrt()
    stretch = (math.log(4 / 3) * (draws[1] - 0.5)).exp()  # square root of the aspect
    across = (side * stretch).round().clamp(1, width)
    down = (side / stretch).round().clamp(1, height)
    left = (draws[2] * (width - across + 1)).floor()
    top = (draws[3] * (height - down + 1)).floor()
    return torch.stack((left, top, across, down))


def crop(pixels: Tensor, boxes: Tensor, mirrored: Tensor) -> Tensor:
    """Cut a box out of each image, mirror it where asked, and resize it to the size of the image (bilinear).

    Args:
        pixels: (B, channels, H, W).
        boxes: left, top, width, height in pixels, (4, B).
        mirrored: (B,) bool.

    As cutting and then interpolating: nothing outside the box shines through at its edge.
    """
    height, width = pixels.shape[2:]
    left, top, across, down = boxes.unsqueeze(2)  # each (B, 1)
    column, row = _centres(width, pixels), _centres(height, pixels)
    # Source positions in pixels from the image's corner, a half is the centre of the first pixel.
    column = torch.where(mirrored[:, None], width - column, column)
    x = left + torch.minimum((column * (across / width)).clamp(min=0.5), across - 0.5)  # (B, W)
    y = top + torch.minimum((row * (down / height)).clamp(min=0.5), down - 0.5)  # (B, H)
    return _sample(pixels, x[:, None, :] * (2 / width) - 1, y[:, :, None] * (2 / height) - 1, "border")


def place(pixels: Tensor, angle: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Rotate, scale and shift each image about its centre (bilinear).

    Args:
        pixels: (B, channels, H, W).
        angle: in radians, counter-clockwise as seen, (B,).
        scale: above 1 enlarges, (B,).
        shift: to the right and down, as a part of the width and the height, (2, B).

    What comes in from outside has the mean colour of the image's four corners: black around a white digit, white around
    black ink, the wall around a house number.
    """
    height, width = pixels.shape[2:]
    ground = pixels[:, :, :: max(height - 1, 1), :: max(width - 1, 1)].mean(dim=(2, 3), keepdim=True)
    right, below = shift[:, :, None, None]  # each (B, 1, 1)
    # Where an output pixel comes from: undo the shift, then the turn and the scale, in pixels about the centre.
    x = _centres(width, pixels) - width / 2 - width * right  # (B, 1, W)
    y = (_centres(height, pixels) - height / 2)[:, None] - height * below  # (B, H, 1)
    cos, sin = (angle.cos() / scale).view(-1, 1, 1), (angle.sin() / scale).view(-1, 1, 1)
    source_x = (cos * x - sin * y) * (2 / width)  # (B, H, W)
    source_y = (sin * x + cos * y) * (2 / height)
    return _sample(pixels - ground, source_x, source_y, "zeros").add_(ground).clamp_(0, 1)


def adjust_brightness(pixels: Tensor, factor: Tensor) -> Tensor:
    """Multiply each image by its factor (B,)."""
    return (pixels * _each(factor)).clamp_(0, 1)


def adjust_contrast(pixels: Tensor, factor: Tensor) -> Tensor:
    """Move each image away from its mean grey by its factor (B,): 0 is flat, 1 the image itself."""
    tone = grey(pixels) if pixels.shape[1] == 3 else pixels
    return _blend(pixels, tone.mean(dim=(1, 2, 3), keepdim=True), factor)


def adjust_saturation(pixels: Tensor, factor: Tensor) -> Tensor:
    """Move each RGB image away from its grey version by its factor (B,): 0 is grey, 1 the image itself."""
    return _blend(pixels, grey(pixels), factor)


def shift_hue(pixels: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue of each RGB image by a part of the colour circle (B,), in HSV: value and saturation stay.

    With the hue h in sixths of the circle, a channel is min + chroma * clamp(2 - |h - peak|, 0, 1), where red peaks at
    0, green at 2, blue at 4, and the distance is that around the circle. Conversely, with r, g, b the channels' shares
    of the chroma, |h| = 1 - r + g + b, and h is positive where green is above blue.
    """
    red, green, blue = pixels.unbind(1)  # each (B, H, W)
    low = pixels.amin(dim=1)
    chroma = pixels.amax(dim=1).sub_(low)
    # A grey pixel has chroma 0, so that any hue gives its grey back; the bound keeps it finite.
    size = (green + blue).sub_(red).sub_(low).div_(chroma.clamp(min=1e-12)).add_(1)
    hue = size.copysign_(green - blue).add_(6 * turn.view(-1, 1, 1))
    hue = hue.sub_((hue / 6).floor_(), alpha=6)  # in [0, 6)
    peaks = torch.arange(0, 6, 2, device=pixels.device).view(3, 1, 1)
    # The distance around the circle is 3 - | |h - peak| - 3 |.
    share = (hue[:, None] - peaks).abs_().sub_(3).abs_().sub_(1).clamp_(0, 1)  # (B, 3, H, W)
    return share.mul_(chroma[:, None]).add_(low[:, None]).clamp_(0, 1)


def grey(pixels: Tensor) -> Tensor:
    """Luma of RGB images, (B, 1, H, W), with the weights of ITU-R BT.601 as torchvision rounds them."""
    red, green, blue = pixels.split(1, dim=1)
    return (0.2989 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def _blend(pixels: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    factor = _each(factor)
    return (pixels * factor).add_(other * (1 - factor)).clamp_(0, 1)


def _each(values: Tensor) -> Tensor:
    """One value for each image, (B, 1, 1, 1)."""
    return values.view(-1, 1, 1, 1)


def _centres(length: int, like: Tensor) -> Tensor:
    return torch.arange(length, device=like.device, dtype=like.dtype) + 0.5


def _sample(pixels: Tensor, x: Tensor, y: Tensor, outside: str) -> Tensor:
    """Read pixels at positions in [-1, 1], x and y broadcast to (B, H, W)."""
    # Broadcasting instead of affine_grid: its matrix product loses a tenth of a pixel in half or TF32 precision.
    planes = torch.stack(torch.broadcast_tensors(x, y), dim=1)  # (B, 2, H, W): far quicker to fill than (B, H, W, 2)
    return F.grid_sample(pixels, planes.permute(0, 2, 3, 1), mode="bilinear", padding_mode=outside, align_corners=False)


RECIPES: dict[str, tuple[int, Callable[[Tensor, Tensor], Tensor]]] = {  # draws a sample, and what is made of them
    "natural": (11, natural),
    "natural_of_normalised": (11, natural_of_normalised),
    "characters": (6, characters),
    "none": (0, lambda images, draws: images / 255),
}
