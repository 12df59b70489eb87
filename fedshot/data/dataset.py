"""A data set is two blocks of labelled uint8 images; it fits in memory, on any device, without a loader."""

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Labelled:
    """Images and their labels."""

    images: Tensor  # (N, channels, H, W) uint8
    labels: Tensor  # (N,) int64
    targets: Tensor | None = None  # (N, T) what a student is to imitate: C probabilities, perhaps a feature after them

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor) -> "Labelled":
        targets = None if self.targets is None else self.targets[index]
        return Labelled(self.images[index], self.labels[index], targets)

    def some(self, most: int) -> "Labelled":
        """At most so many of them, evenly spaced.

        >>> Labelled(torch.zeros(5, 1, 8, 8), torch.arange(5)).some(2).labels
        tensor([0, 3])
        """
        return self[torch.arange(0, len(self), -(-len(self) // most), device=self.labels.device)]

    def to(self, device: torch.device | str) -> "Labelled":
        targets = None if self.targets is None else self.targets.to(device)
        return Labelled(self.images.to(device), self.labels.to(device), targets)


@dataclass(frozen=True)
class Dataset:
    """A data set as an experiment sees it."""

    name: str
    train: Labelled
    test: Labelled
    class_names: tuple[str, ...]
    mean: tuple[float, ...]  # per channel, of pixels in [0, 1]
    std: tuple[float, ...]
    augmentation: Literal["natural", "characters"]  # flips and colour are wrong for characters
    groups: Tensor | None = None  # (N_train,) int64: who wrote or owns an image, for the natural partition

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, height, width = self.train.images.shape[1:]
        return channels, height, width

    def to(self, device: torch.device | str) -> "Dataset":
        return replace(self, train=self.train.to(device), test=self.test.to(device))


def content_sha256(data: Dataset) -> str:
    """Hash of all images and labels."""
    digest = hashlib.sha256()
    for part in (data.train, data.test):
        digest.update(part.images.cpu().numpy().tobytes())
        digest.update(part.labels.cpu().numpy().tobytes())
    return digest.hexdigest()
