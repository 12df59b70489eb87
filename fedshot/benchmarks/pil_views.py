"""Augmented views made image by image with Pillow on the CPU, as published training code makes them.

The operations are those of torchvision's transforms on PIL images, without torchvision. Draws come from Python's own
generator, which is quicker than the one-element tensors that torchvision draws.
"""

import math
import random
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageEnhance
from torch import Tensor

Picture = Image.Image


def to_tensor(picture: Picture, mean: Tensor, std: Tensor) -> Tensor:
    """A normalised tensor (channels, H, W) of a picture of 8 bits a channel; mean and std are (channels, 1, 1)."""
    pixels = np.array(picture, copy=True)
    planes = torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1)).permute(2, 0, 1)
    values = planes.to(torch.float32, memory_format=torch.contiguous_format).div_(255)
    return values.sub_(mean).div_(std)


def natural(picture: Picture, draw: random.Random) -> Picture:
    """Random resized crop of area 0.2 to 1, flip, colour jitter with probability 0.8, grey with probability 0.2."""
    picture = picture.resize(picture.size, Image.Resampling.BILINEAR, box=crop_box(picture.size, draw))
    if draw.random() < 0.5:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if draw.random() < 0.8:
        picture = jitter(picture, draw)
    if picture.mode == "RGB" and draw.random() < 0.2:
        picture = picture.convert("L").convert("RGB")
    return picture


def crop_box(size: tuple[int, int], draw: random.Random) -> tuple[int, int, int, int]:
    """Left, top, right, bottom: area 0.2 to 1, aspect 3/4 to 4/3, drawn up to ten times until it fits, else all."""
    width, height = size
    for _ in range(10):
        area = width * height * draw.uniform(0.2, 1.0)
        aspect = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
        across, down = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < across <= width and 0 < down <= height:
            left, top = draw.randint(0, width - across), draw.randint(0, height - down)
            return left, top, left + across, top + down
    return 0, 0, width, height


def jitter(picture: Picture, draw: random.Random) -> Picture:
    """Brightness, contrast and saturation by 0.6 to 1.4, hue by up to 0.1 of a turn, in random order."""
    changes: list[Callable[[Picture], Picture]] = [
        lambda p: ImageEnhance.Brightness(p).enhance(draw.uniform(0.6, 1.4)),
        lambda p: ImageEnhance.Contrast(p).enhance(draw.uniform(0.6, 1.4)),
    ]
    if picture.mode == "RGB":
        changes.append(lambda p: ImageEnhance.Color(p).enhance(draw.uniform(0.6, 1.4)))
        changes.append(lambda p: shift_hue(p, draw.uniform(-0.1, 0.1)))
    draw.shuffle(changes)
    for change in changes:
        picture = change(picture)
    return picture


def shift_hue(picture: Picture, turn: float) -> Picture:
    """The hue of an RGB picture turned by a part of the colour circle."""
    hue, saturation, value = picture.convert("HSV").split()
    turned = np.array(hue) + np.uint8(round(turn * 255) % 256)  # the circle has 256 steps: uint8 wraps around
    return Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")


def characters(picture: Picture, draw: random.Random) -> Picture:
    """Rotation by up to 10 degrees, scale 0.9 to 1.1, shift by up to a tenth; brightness and contrast by 0.8 to 1.2."""
    width, height = picture.size
    angle, scale = math.radians(draw.uniform(-10, 10)), draw.uniform(0.9, 1.1)
    right, below = draw.uniform(-0.1, 0.1) * width, draw.uniform(-0.1, 0.1) * height
    cos, sin, x, y = math.cos(angle) / scale, math.sin(angle) / scale, width / 2, height / 2
    # from an output position to its source: undo the shift, then turn and scale about the centre
    source = (cos, -sin, x - cos * (x + right) + sin * (y + below), sin, cos, y - sin * (x + right) - cos * (y + below))
    ground = picture.getpixel((0, 0))
    picture = picture.transform(
        picture.size, Image.Transform.AFFINE, source, Image.Resampling.BILINEAR, fillcolor=ground
    )
    picture = ImageEnhance.Brightness(picture).enhance(draw.uniform(0.8, 1.2))
    return ImageEnhance.Contrast(picture).enhance(draw.uniform(0.8, 1.2))


RECIPES: dict[str, Callable[[Picture, random.Random], Picture]] = {"natural": natural, "characters": characters}
