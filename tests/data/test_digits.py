import numpy as np
import torch

from fedshot.data import load
from fedshot.data.digits import FILE


def test_digits_are_1437_and_360_images_of_the_shipped_file():
    digits = load("digits")
    assert (len(digits.train), len(digits.test), digits.shape, digits.classes) == (1437, 360, (1, 8, 8), 10)
    assert digits.train.images.dtype == torch.uint8 and digits.train.labels.dtype == torch.int64
    assert digits.train.images.is_contiguous() and digits.augmentation == "characters"
    together = torch.cat([digits.train.images, digits.test.images]).flatten(1)
    with np.load(FILE, allow_pickle=False) as packed:
        shipped = torch.from_numpy(np.rint(packed["images"] * 15.9375).astype(np.uint8)).flatten(1)
    assert sorted(map(tuple, together.tolist())) == sorted(map(tuple, shipped.tolist()))
    assert set(together.unique().tolist()) <= {round(value * 255 / 16) for value in range(17)}


def test_split_is_stratified_disjoint_and_the_same_every_time():
    first, second = load("digits", seed=1), load("digits", seed=2)
    assert torch.equal(first.train.images, second.train.images) and torch.equal(first.test.labels, second.test.labels)
    every = torch.bincount(first.train.labels) + torch.bincount(first.test.labels)
    assert every.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (torch.bincount(first.test.labels) - every / 5).abs().max() < 1


def test_constants_normalise_the_training_part():
    digits = load("digits")
    pixels = digits.train.images.double() / 255
    assert abs(float(pixels.mean()) - digits.mean[0]) < 1e-9
    assert abs(float(pixels.std(correction=0)) - digits.std[0]) < 1e-9


def test_shipped_file_is_small():
    assert FILE.stat().st_size < 48_000
