"""The recipe "natural" for RGB images as one kernel: a program makes one view, its pixels never leave the registers.

The twin is `fedshot.local.views.natural` followed by normalisation; the draws are the same, so are the views.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _clamp(values):
    return tl.minimum(tl.maximum(values, 0.0), 1.0)


@triton.jit
def _grey(red, green, blue):
    return 0.2989 * red + 0.587 * green + 0.114 * blue


@triton.jit
def _tap(plane, upper, lower, left, right, down, across, W, inside):
    """Bilinear between four pixels of a plane of bytes, in [0, 1]."""
    top_left = tl.load(plane + upper * W + left, mask=inside, other=0).to(tl.float32)
    top_right = tl.load(plane + upper * W + right, mask=inside, other=0).to(tl.float32)
    low_left = tl.load(plane + lower * W + left, mask=inside, other=0).to(tl.float32)
    low_right = tl.load(plane + lower * W + right, mask=inside, other=0).to(tl.float32)
    top = top_left * (1 - across) + top_right * across
    low = low_left * (1 - across) + low_right * across
    return (top * (1 - down) + low * down) / 255


@triton.jit
def _share(hue, peak, chroma, low):
    """A channel whose peak lies at that sixth of the colour circle."""
    distance = 3 - tl.abs(tl.abs(hue - peak) - 3)
    return _clamp(_clamp(2 - distance) * chroma + low)


@triton.jit
def _natural(images, draws, out, mean, std, B, V, H, W, BLOCK: tl.constexpr):
    view = tl.program_id(0)
    image = images + (view % B).to(tl.int64) * 3 * H * W
    draw = draws + view
    # the box: area, aspect, place, each side within the image
    side = tl.sqrt(H * W * (0.2 + 0.8 * tl.load(draw)))
    stretch = tl.exp(0.28768207245178085 * (tl.load(draw + V) - 0.5))  # log 4/3
    box_w = tl.minimum(tl.maximum(_round(side * stretch), 1.0), W)
    box_h = tl.minimum(tl.maximum(_round(side / stretch), 1.0), H)
    box_x = tl.floor(tl.load(draw + 2 * V) * (W - box_w + 1))
    box_y = tl.floor(tl.load(draw + 3 * V) * (H - box_h + 1))
    # where each pixel comes from, in pixels from the corner; a half is the centre of the first
    pixel = tl.arange(0, BLOCK)
    inside = pixel < H * W
    column = (pixel % W).to(tl.float32) + 0.5
    row = (pixel // W).to(tl.float32) + 0.5
    column = tl.where(tl.load(draw + 4 * V) < 0.5, W - column, column)
    x = box_x + tl.minimum(tl.maximum(column * (box_w / W), 0.5), box_w - 0.5) - 0.5
    y = box_y + tl.minimum(tl.maximum(row * (box_h / H), 0.5), box_h - 0.5) - 0.5
    left = tl.floor(x)
    upper = tl.floor(y)
    across = x - left
    down = y - upper
    left = left.to(tl.int32)
    upper = upper.to(tl.int32)
    right = tl.minimum(left + 1, W - 1)
    lower = tl.minimum(upper + 1, H - 1)
    red = _tap(image, upper, lower, left, right, down, across, W, inside)
    green = _tap(image + H * W, upper, lower, left, right, down, across, W, inside)
    blue = _tap(image + 2 * H * W, upper, lower, left, right, down, across, W, inside)
    # brightness, contrast, saturation, hue where the sample's colours are jittered
    jittered = tl.where(tl.load(draw + 5 * V) < 0.8, 1.0, 0.0)
    factor = 1 + 0.4 * (2 * tl.load(draw + 6 * V) - 1) * jittered
    red, green, blue = _clamp(red * factor), _clamp(green * factor), _clamp(blue * factor)
    factor = 1 + 0.4 * (2 * tl.load(draw + 7 * V) - 1) * jittered
    tone = tl.sum(tl.where(inside, _grey(red, green, blue), 0.0), 0) / (H * W) * (1 - factor)
    red, green, blue = _clamp(red * factor + tone), _clamp(green * factor + tone), _clamp(blue * factor + tone)
    factor = 1 + 0.4 * (2 * tl.load(draw + 8 * V) - 1) * jittered
    tones = _grey(red, green, blue) * (1 - factor)
    red, green, blue = _clamp(red * factor + tones), _clamp(green * factor + tones), _clamp(blue * factor + tones)
    low = tl.minimum(tl.minimum(red, green), blue)
    chroma = tl.maximum(tl.maximum(red, green), blue) - low
    size = (green + blue - red - low) / tl.maximum(chroma, 1e-12) + 1
    hue = tl.where(green - blue < 0, -tl.abs(size), tl.abs(size))
    hue += 0.6 * (2 * tl.load(draw + 9 * V) - 1) * jittered
    hue -= 6 * tl.floor(hue / 6)
    red, green, blue = _share(hue, 0.0, chroma, low), _share(hue, 2.0, chroma, low), _share(hue, 4.0, chroma, low)
    factor = tl.where(tl.load(draw + 10 * V) >= 0.2, 1.0, 0.0)
    tones = _grey(red, green, blue) * (1 - factor)
    red, green, blue = _clamp(red * factor + tones), _clamp(green * factor + tones), _clamp(blue * factor + tones)
    # channels last
    place = out + view.to(tl.int64) * 3 * H * W + 3 * pixel
    kind = out.dtype.element_ty
    tl.store(place, ((red - tl.load(mean)) / tl.load(std)).to(kind), mask=inside)
    tl.store(place + 1, ((green - tl.load(mean + 1)) / tl.load(std + 1)).to(kind), mask=inside)
    tl.store(place + 2, ((blue - tl.load(mean + 2)) / tl.load(std + 2)).to(kind), mask=inside)


@triton.jit
def _round(value):
    """To the nearest whole number, halves to the even one."""
    below = tl.floor(value)
    odd = below - 2 * tl.floor(below / 2)
    apart = value - below
    return tl.where((apart > 0.5) | ((apart == 0.5) & (odd == 1)), below + 1, below)


def natural_inputs(images: Tensor, draws: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Normalised views (V, 3, H, W), channels last, of RGB images (B, 3, H, W) uint8, all of view 1 first.

    Args:
        draws: uniform in [0, 1), (11, V), V a multiple of B.
    """
    batch, channels, height, width = images.shape
    views = draws.shape[1]
    out = torch.empty((views, channels, height, width), device=images.device, memory_format=torch.channels_last)
    _natural[(views,)](
        images, draws, out, mean, std, batch, views, height, width, BLOCK=triton.next_power_of_2(height * width)
    )
    return out
