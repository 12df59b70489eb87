"""The embedded data set: 1,797 handwritten digits of 8x8 pixels, for tests and first steps without a download.

The test part of "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak, 1998, UCI Machine Learning
Repository, CC BY 4.0), in the order in which scikit-learn ships it. digits.npz holds `images` (1797, 8, 8) with
values 0 to 16 and `labels` (1797,).
"""

import hashlib
from pathlib import Path

import numpy as np
import torch

from fedshot.data.checks import labelled, statistics
from fedshot.data.dataset import Dataset, Labelled
from fedshot.errors import UserError

FILE = Path(__file__).with_name("digits.npz")
TITLE = "Handwritten digits, 8x8"
CLASS_NAMES = tuple("0123456789")
SHAPE = (1, 8, 8)
COUNTS = (1437, 360)
SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"  # of images and labels, one after the other


def split(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and of the test images: every fifth image of the list sorted by class is a test image.

    No random number is involved, and each class gives a fifth of its images, to within one.

    >>> train, test = split(np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1]))
    >>> test.tolist(), train.tolist()
    ([0, 1], [2, 3, 4, 5, 6, 7, 8, 9])
    """
    by_class = np.argsort(labels, kind="stable")
    chosen = np.arange(len(labels)) % 5 == 0
    return np.sort(by_class[~chosen]), np.sort(by_class[chosen])


def load_digits() -> Dataset:
    """The digits with pixels 0 to 255: 1,437 training and 360 test images."""
    with np.load(FILE, allow_pickle=False) as packed:
        values, labels = packed["images"], packed["labels"]
    pixels = np.rint(values * (255 / 16)).astype(np.uint8)[:, None]  # (N, 1, 8, 8)
    everything = labelled(pixels, labels, len(CLASS_NAMES), FILE.name)
    train, test = (_part(everything, index) for index in split(labels))
    mean, std = statistics(train.images)
    return Dataset("digits", train, test, CLASS_NAMES, mean, std, augmentation="characters")


def _part(everything: Labelled, index: np.ndarray) -> Labelled:
    return everything[torch.from_numpy(index)]


def embedded_sha256() -> str:
    """The checksum of the shipped arrays."""
    if not FILE.exists():
        raise UserError(f"the package lacks {FILE.name}: install fedshot again")
    with np.load(FILE, allow_pickle=False) as packed:
        return hashlib.sha256(packed["images"].tobytes() + packed["labels"].tobytes()).hexdigest()
