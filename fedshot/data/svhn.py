"""SVHN, cropped digits (Netzer et al., 2011): train_32x32.mat and test_32x32.mat."""

from pathlib import Path

import numpy as np

from fedshot.data.checks import bad_file, labelled
from fedshot.data.dataset import Labelled
from fedshot.data.source import Parts

FILES = ("train_32x32.mat", "test_32x32.mat")
EXPECTED = "an SVHN file"


def read_svhn(place: Path) -> Parts:
    """Training and test part; the extra part is not used, as in the published one-shot results."""
    train, test = (_read(place / file) for file in FILES)
    return Parts(train, test)


def _read(path: Path) -> Labelled:
    """X is (32, 32, 3, N) uint8, y is (N, 1) with the digit 0 written as 10."""
    from scipy.io import loadmat  # takes a second to import

    try:
        content = loadmat(path, variable_names=("X", "y"))
        images, labels = content["X"], content["y"]
    except Exception as error:  # scipy fails in many ways on a damaged file
        raise bad_file(path, EXPECTED, f"{type(error).__name__}: {error}") from error
    if images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise bad_file(path, EXPECTED, f"X of shape {images.shape}, not (32, 32, 3, N)")
    labels = labels.reshape(-1)
    if labels.dtype.kind not in "iu" or len(labels) == 0 or labels.min() < 1 or labels.max() > 10:
        raise bad_file(path, EXPECTED, "y does not hold the labels 1 to 10")
    return labelled(images.transpose(3, 2, 0, 1), labels.astype(np.int64) % 10, 10, path)
