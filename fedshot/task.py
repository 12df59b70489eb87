"""What every client and the server know before anything is trained."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from fedshot.data.dataset import Labelled
from fedshot.pretrained import Pretrained


@dataclass(frozen=True, eq=False)
class Public:
    """Images that everybody may see, of the shape of the task's."""

    data: Labelled
    classes: int
    same_labels: bool  # whether their labels are those of the task


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
    augmentation: Literal["natural", "characters", "none"] = "natural"
    public: Public | None = None
    normalisation: Literal["alike", "views", "twice"] = "alike"
    pretrained: Pretrained | None = None  # what the encoder starts from; None for weights drawn from the seed

    @property
    def mirrored(self) -> bool:
        """Whether an image and its mirror are one to the task."""
        return self.augmentation == "natural"  # the only recipe that flips

    def normalise(self, pixels: Tensor) -> Tensor:
        """Pixels in [0, 1], (B, channels, H, W), to zero mean and unit deviation, channels last in memory."""
        return channels_last((pixels - channels(self.mean, pixels.device)) / channels(self.std, pixels.device))

    def prepare(self, images: Tensor) -> Tensor:
        """uint8 images as stored to what an encoder reads, without augmentation."""
        pixels = images.float() / 255
        return channels_last(pixels) if self.normalisation == "views" else self.normalise(pixels)

    def pixels(self, prepared: Tensor) -> Tensor:
        """The pixels in [0, 1] that prepared images were made of."""
        if self.normalisation != "views":
            prepared = prepared * channels(self.std, prepared.device) + channels(self.mean, prepared.device)
        return prepared.clamp(0, 1)


@lru_cache(maxsize=64)
def channels(values: tuple[float, ...], device: torch.device) -> Tensor:
    """One value for each channel, (1, channels, 1, 1), made once for each device: a captured step copies nothing."""
    return torch.tensor(values, device=device).view(1, -1, 1, 1)


def channels_last(images: Tensor) -> Tensor:
    """The same images with their channels last in memory: the order in which convolutions are fastest.

    Images of one channel look the same in both orders, and torch would go on in the other one: their strides must say
    which it is.

    >>> channels_last(torch.zeros(2, 1, 8, 8)).stride()
    (64, 1, 8, 1)
    """
    if images.shape[1] == 1:
        return images.contiguous().view(len(images), *images.shape[2:], 1).permute(0, 3, 1, 2)
    return images.contiguous(memory_format=torch.channels_last)
