"""Images that nobody took: overlapping shapes of random colour, with the edges and the spectrum of natural images."""

import math

import torch
from torch import Tensor

_LARGEST = 0.6  # radius of a shape, as a part of the image's side


def dead_leaves(count: int, size: int, channels: int, generator: torch.Generator, shapes: int = 60) -> Tensor:
    """Dead leaves, Lee, Mumford & Huang 2001: discs and boxes that fall on each other, radii by a power law.

    Each shape has an axis, a stretch, a colour and a shading of its own. Images are drawn by the generator alone, on
    the CPU: everybody who has its seed has the same.

    Returns:
        Pixels in [0, 1], (count, channels, size, size).
    """

    def uniform(*shape: int) -> Tensor:
        return torch.rand(count, *shape, generator=generator)

    def normal(*shape: int) -> Tensor:
        return torch.randn(count, *shape, generator=generator)

    axis = torch.arange(size, dtype=torch.float32)
    pixels = uniform(channels, 1, 1).expand(count, channels, size, size).clone()
    for _ in range(shapes):
        radius = _power_law(uniform(1, 1), 1.0, _LARGEST * size)
        right, down = axis - size * uniform(1, 1), (axis - size * uniform(1, 1)).mT
        angle, stretch = math.pi * uniform(1, 1), (normal(1, 1) / 4).exp()
        along = (angle.cos() * right + angle.sin() * down) / (radius * stretch)  # (count, size, size)
        across = (angle.cos() * down - angle.sin() * right) / (radius / stretch)
        round_ones = uniform(1, 1) < 0.5
        away = torch.where(round_ones, along.hypot(across), torch.maximum(along.abs(), across.abs()))
        cover = ((1 - away) * radius + 0.5).clamp(0, 1)[:, None]
        colour = (uniform(1, 1, 1) + normal(channels, 1, 1) / 4).clamp(0, 1)
        shading = (0.3 * (normal(1, 1) * along + normal(1, 1) * across)).clamp(-0.4, 0.4)[:, None]
        pixels = torch.lerp(pixels, (colour + shading).clamp(0, 1), cover)
    return pixels


def _power_law(uniform: Tensor, least: float, most: float, exponent: float = 3.0) -> Tensor:
    """Draws with a density proportional to r^-exponent between two radii, from uniform ones.

    >>> _power_law(torch.tensor([0.0, 1.0]), 1.0, 19.0).round()
    tensor([ 1., 19.])
    """
    low, high = least ** (1 - exponent), most ** (1 - exponent)
    return (low + uniform * (high - low)) ** (1 / (1 - exponent))
