"""A data set that is made, not read: for measurements and trials where no files are at hand.

Every class has a texture of 8x8 random cells. An image is the texture of its class, shifted by chance, mixed half and
half with noise. All numbers are whole and come from fixed streams, so the images are the same on every machine.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedshot.data.checks import statistics
from fedshot.data.dataset import Dataset, Labelled
from fedshot.errors import UserError
from fedshot.options import bind, parse_inline
from fedshot.seeds import stream

NAME = "synthetic"
TITLE = "Textures and noise, made on the spot"
SHAPE = (3, 32, 32)
COUNTS = (50_000, 10_000)
CLASSES = 10
_CELLS = 8  # a texture has as many cells along either side
_CHUNK = 5_000  # images made at a time


def load_synthetic(name: str) -> Dataset:
    """The data set of a full name, `synthetic` or `synthetic:images=5000,size=32`."""
    what = f"data set {NAME!r}"
    made = bind(synthetic, parse_inline(name.partition(":")[2], what), what)
    return Dataset(name, made.train, made.test, made.class_names, made.mean, made.std, made.augmentation)


def synthetic(
    images: Annotated[int, Field(ge=2, le=1_000_000)] = COUNTS[0],
    size: Annotated[int, Field(ge=4, le=256)] = SHAPE[1],
    classes: Annotated[int, Field(ge=2, le=1_000)] = CLASSES,
    channels: Annotated[int, Field(ge=1, le=3)] = SHAPE[0],
    test: Annotated[int, Field(ge=1, le=1_000_000)] | None = None,
) -> Dataset:
    """As many training images of size x size pixels, and `test` test images, by default a fifth of that.

    Classes are as even as the numbers allow.

    >>> made = synthetic(images=100, size=8, classes=4, channels=1)
    >>> len(made.train), len(made.test), made.shape, made.train.labels.bincount().tolist()
    (100, 20, (1, 8, 8), [25, 25, 25, 25])
    """
    if channels == 2:
        raise UserError(f"data set {NAME!r}: channels takes 1 (grey) or 3 (colour), not 2")
    if images < classes:
        raise UserError(f"data set {NAME!r}: {images} images cannot show {classes} classes: give at least {classes}")
    cells = torch.randint(256, (classes, channels, _CELLS, _CELLS), generator=_stream("textures"))
    place = torch.arange(size) * _CELLS // size
    textures = cells[:, :, place][:, :, :, place].to(torch.uint8)  # (C, channels, size, size)
    train = _images(textures, images, "train")
    mean, std = statistics(train.images)
    tested = _images(textures, test or max(1, images // 5), "test")
    return Dataset(NAME, train, tested, tuple(str(label) for label in range(classes)), mean, std, "natural")


def _images(textures: Tensor, count: int, part: str) -> Labelled:
    classes, channels, size, _ = textures.shape
    labels = (torch.arange(count) % classes)[torch.randperm(count, generator=_stream(part, "labels"))]
    shifts = torch.randint(size, (2, count), generator=_stream(part, "shifts"))
    noise = _stream(part, "noise")
    images = torch.empty(count, channels, size, size, dtype=torch.uint8)
    for start in range(0, count, _CHUNK):
        chunk = slice(start, min(start + _CHUNK, count))
        row, column = (shifts[:, chunk, None] + torch.arange(size)) % size  # each (n, size)
        # an index between the axes of the image puts the channels last: (n, size, size, channels)
        shown = textures[labels[chunk, None, None], :, row[:, :, None], column[:, None, :]].permute(0, 3, 1, 2)
        grain = torch.randint(256, shown.shape, generator=noise, dtype=torch.uint8)
        images[chunk] = shown // 2 + grain // 2
    return Labelled(images, labels)


def _stream(*name: str) -> torch.Generator:
    return stream(0, NAME, *name)
