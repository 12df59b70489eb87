"""What everybody sees in an image from the start: by fixed filters, and by an encoder that was trained before."""

import math
from functools import lru_cache
from typing import TypeAlias

import torch
from torch import Tensor, nn

from fedshot.errors import UserError
from fedshot.models import Encoder, initial_encoder
from fedshot.models.common import PER_FILTER, CommonFeatures
from fedshot.models.procedural import dead_leaves
from fedshot.seeds import stream
from fedshot.task import Task

_SEED = 1  # common knowledge, whatever the seed of a run
_TRIED = 256  # images that nobody took, on which filters and encoder are compared
_AT_ONCE = 512  # images

Look: TypeAlias = "CommonFeatures | FiltersAndEncoder"


@lru_cache(maxsize=4)  # clients and server of a run share it, and only read it
def common_look(task: Task, width: int, device: torch.device) -> Look:
    """From pixels in [0, 1], (N, channels, H, W), to common features (N, width).

    Those of filters. Where clients start from an encoder that was trained before, at most half of them are its own.
    """
    if task.pretrained is None:
        return CommonFeatures(task.shape, width, task.mirrored).to(device)
    encoder = initial_encoder(task)
    seen = min(encoder.width, width // 2) // PER_FILTER * PER_FILTER
    filters = CommonFeatures(task.shape, width - seen, task.mirrored)
    return FiltersAndEncoder(filters, encoder, task, seen).to(device)


class FiltersAndEncoder(nn.Module):
    """Pixels to features of filters and, beside them, to what an encoder sees, in as many directions as there is room.

    Where a flip does not matter, features of the encoder are the mean of the image's and its mirror's, as those of
    filters are. They are scaled to vary as much as those: a ridge is to weigh on both alike.
    """

    def __init__(self, filters: CommonFeatures, encoder: Encoder, task: Task, seen: int) -> None:
        super().__init__()
        self.width = filters.width + seen
        self.filters, self.encoder, self.task = filters, encoder.eval().requires_grad_(False), task
        generator = stream(_SEED, "look", encoder.width, seen)
        directions = torch.randn(encoder.width, seen, generator=generator, dtype=torch.float64)
        self.register_buffer("directions", torch.linalg.qr(directions).Q.float(), persistent=False)  # (d, seen)
        self.scale = 1.0
        self.scale = self._scale()

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        seen = [self._encoded(part) for part in pixels.split(_AT_ONCE)]
        return torch.cat([self.filters(pixels), torch.cat(seen)], dim=1)

    def _encoded(self, pixels: Tensor) -> Tensor:
        prepared = self.task.normalise(pixels)
        found = self.encoder(prepared)  # (N, d)
        if self.task.mirrored:
            found = (found + self.encoder(prepared.flip(3))) / 2
        return self.scale * (found @ self.directions)

    def _scale(self) -> float:
        """A power of two: features do not depend on how the sums behind it were rounded."""
        channels, height, width = self.task.shape
        images = dead_leaves(_TRIED, max(height, width), channels, stream(_SEED, "look", *self.task.shape))
        varying = self(images[:, :, :height, :width]).var(0)
        theirs, own = varying[: self.filters.width].mean(), varying[self.filters.width :].mean()
        if not own.isfinite():
            raise UserError("the encoder that clients start from makes features that are not finite: train it again")
        return 2.0 ** round(math.log2(theirs / own.clamp(min=1e-12)) / 2)
