"""Features that everybody has from the start: those of fixed filters, learned from no one's data.

Statistics of trained features cannot be added up over clients, whose encoders differ. Those of common features can:
class means and covariances of all clients together are what one client with all the data would have found.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedshot.models.procedural import dead_leaves
from fedshot.seeds import stream

_SEED = 1  # common knowledge, whatever the seed of a run
_LARGEST = 32  # rows and columns; larger images are averaged down
_SOURCES = 3000  # images that patches are taken from
_PATCHES = 200_000
_CONTRAST = 10 / 255  # patches of less contrast are not blown up
_FLATTEN = 0.05  # of the mean eigenvalue is added before patches are whitened
_THRESHOLD = 0.5  # deviations that a response must exceed
_CELLS = 2  # rows and columns over which responses are averaged
PER_FILTER = 2 * _CELLS**2  # features: both signs, in each cell
_FLOATS_AT_ONCE = {"cpu": 2**24, "cuda": 2**29}


@dataclass(frozen=True)
class Bank:
    """Filters of one scale: patches of procedural images, whitened and of unit norm."""

    shrink: int  # the image is averaged over tiles of that side first
    filters: Tensor  # (M, channels, p, p), whitening included
    offset: Tensor  # (M,)


class CommonFeatures(nn.Module):
    """Pixels in [0, 1], (N, channels, H, W), to features (N, D), after Coates, Ng & Lee 2011, with patches of nobody.

    A patch is freed of its mean and contrast and compared with each filter; responses of either sign above a threshold
    are averaged over the four quarters of the image; their root is a feature. Half of the filters look at the image,
    half at it in half its size. Where a flip does not matter, a feature is the mean of the image's and its mirror's.
    """

    def __init__(self, shape: tuple[int, int, int], width: int, mirrored: bool) -> None:
        super().__init__()
        self.mirrored = mirrored
        self.width = width // PER_FILTER * PER_FILTER
        self.size = min(shape[1], _LARGEST), min(shape[2], _LARGEST)
        self._shrinks = []
        for number, bank in enumerate(_banks(shape[0], min(self.size), width // PER_FILTER)):
            self.register_buffer(f"filters_{number}", bank.filters, persistent=False)
            self.register_buffer(f"offset_{number}", bank.offset, persistent=False)
            self._shrinks.append(bank.shrink)

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        filters = sum(len(self.get_buffer(f"offset_{number}")) for number in range(len(self._shrinks)))
        at_once = max(1, _FLOATS_AT_ONCE[pixels.device.type] // (2 * filters * math.prod(self.size)))
        return torch.cat([self._of(part) for part in pixels.split(at_once)])

    def _of(self, pixels: Tensor) -> Tensor:
        if tuple(pixels.shape[2:]) != self.size:
            pixels = functional.adaptive_avg_pool2d(pixels, self.size)
        found = self._responses(pixels)
        if self.mirrored:
            found = (found + self._responses(pixels.flip(3))) / 2
        return found.sqrt()

    def _responses(self, pixels: Tensor) -> Tensor:
        """Mean responses in each cell, both signs, (N, D)."""
        parts = []
        for number, shrink in enumerate(self._shrinks):
            filters, offset = self.get_buffer(f"filters_{number}"), self.get_buffer(f"offset_{number}")
            scaled = functional.avg_pool2d(pixels, shrink) if shrink > 1 else pixels
            found = _compare(scaled, filters, offset)
            both = torch.cat([functional.relu(found - _THRESHOLD), functional.relu(-found - _THRESHOLD)], dim=1)
            parts.append(functional.adaptive_avg_pool2d(both, _CELLS).flatten(1))
        return torch.cat(parts, dim=1)


def common_width(room: int, classes: int) -> int:
    """The largest D whose statistics fit into that many bytes: 2 a number of class means and root, 4 of the centre.

    Two filters' worth where there is no room, as for a small encoder of many classes.

    >>> common_width(22_000_000, classes=10), common_width(-100_000, classes=10)
    (4672, 16)
    """
    linear = 2 * classes + 5
    width = math.sqrt(max(room, 0) + linear**2 / 4) - linear / 2  # D·(D + 1) + 2·C·D + 4·D = room
    return PER_FILTER * max(2, int(width) // PER_FILTER)


def _compare(pixels: Tensor, filters: Tensor, offset: Tensor) -> Tensor:
    """How much each patch is like each filter, freed of the patch's mean and contrast, of deviation 1 over filters."""
    numbers = filters[0].numel()
    box = filters.new_full((1, *filters.shape[1:]), 1 / numbers)
    mean, square = functional.conv2d(pixels, box), functional.conv2d(pixels.square(), box)
    contrast = ((square - mean.square()).clamp(min=0) * (numbers / (numbers - 1)) + _CONTRAST**2).sqrt()
    like = functional.conv2d(pixels, filters) - mean * filters.sum((1, 2, 3))[:, None, None]
    like = like / contrast + offset[:, None, None]
    return like / (like.square().mean(1, keepdim=True) + 1e-3).sqrt()


@lru_cache(maxsize=8)
def _banks(channels: int, size: int, filters: int) -> tuple[Bank, ...]:
    """The filters for images of that size, at one scale or two."""
    generator = stream(_SEED, "common", channels, size)
    images = dead_leaves(_SOURCES, size, channels, generator)
    if size < 16 or filters < 2:
        return (_bank(images, 1, max(2, round(size * 3 / 8)), filters, generator),)
    fine, coarse = round(size * 6 / 32), round(size * 5 / 32)
    half = filters // 2
    return _bank(images, 1, fine, filters - half, generator), _bank(images, 2, coarse, half, generator)


def _bank(images: Tensor, shrink: int, side: int, filters: int, generator: torch.Generator) -> Bank:
    scaled = functional.avg_pool2d(images, shrink)
    rooms = scaled.shape[2] - side + 1
    which = torch.randint(len(scaled), (_PATCHES, 1, 1), generator=generator)
    rows, columns = (torch.randint(rooms, (_PATCHES, 1, 1), generator=generator) for _ in range(2))
    span = torch.arange(side)
    patches = scaled.permute(0, 2, 3, 1)[which, rows + span[:, None], columns + span]  # (patches, side, side, channels)
    patches = patches.permute(0, 3, 1, 2).flatten(1)
    patches = patches - patches.mean(1, keepdim=True)
    patches = patches / (patches.var(1, keepdim=True) + _CONTRAST**2).sqrt()
    mean = patches.mean(0)
    values, vectors = torch.linalg.eigh(torch.cov(patches.T).double())
    whitening = ((vectors * (values + _FLATTEN * values.mean()).rsqrt()) @ vectors.T).float()
    white = (patches - mean) @ whitening
    first, second = white[: 2 * filters].chunk(2)  # many patches show hardly anything: of two, the one that shows more
    better = first.norm(dim=1) >= second.norm(dim=1)
    directions = functional.normalize(torch.where(better[:, None], first, second), dim=1)
    weights = (directions @ whitening).view(filters, images.shape[1], side, side)
    return Bank(shrink, weights.contiguous(), -(directions @ (whitening @ mean)))
