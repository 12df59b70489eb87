"""What every client and the server know before anything is trained."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor


@dataclass(frozen=True)
class Task:
    """The shared knowledge of a federation: the labels, the shape of an image, the architecture, the seed."""

    classes: int
    shape: tuple[int, int, int]  # channels, height, width
    mean: tuple[float, ...]  # per channel, of pixels in [0, 1]
    std: tuple[float, ...]
    encoder: str  # a name in fedshot.models.ENCODERS
    norm: str = "batch"  # "batch" or "group"
    seed: int = 1

    def normalise(self, pixels: Tensor) -> Tensor:
        """Pixels in [0, 1], (B, channels, H, W), to zero mean and unit deviation."""
        return (pixels - channels(self.mean, pixels.device)) / channels(self.std, pixels.device)

    def prepare(self, images: Tensor) -> Tensor:
        """uint8 images as stored to what an encoder reads, without augmentation."""
        return self.normalise(images.float() / 255)


@lru_cache(maxsize=64)
def channels(values: tuple[float, ...], device: torch.device) -> Tensor:
    """One value for each channel, (1, channels, 1, 1), made once for each device: a captured step copies nothing."""
    return torch.tensor(values, device=device).view(1, -1, 1, 1)
