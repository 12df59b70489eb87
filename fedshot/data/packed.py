"""NAME.npz: a whole data set as the arrays x_train, y_train, x_test, y_test, and groups_train if there are groups.

x is uint8, (N, H, W) or (N, H, W, channels); y holds whole numbers, (N,). groups_train (N_train,), numbers or text,
says who wrote or owns a training image. Nothing is unpickled.
"""

import hashlib
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedshot.data.checks import bad_file, labelled
from fedshot.data.source import Parts

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
EXPECTED = "a packed data set"


def read_packed(path: Path, classes: int) -> Parts:
    """The data set in the file."""
    arrays = read_arrays(path)
    train, test = (
        labelled(_channels_first(arrays[f"x_{part}"], path), arrays[f"y_{part}"], classes, path)
        for part in ("train", "test")
    )
    groups = arrays.get("groups_train")
    return Parts(train, test, groups=None if groups is None else _group_numbers(groups, len(train), path))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays by name; the four that make a data set are all there."""
    try:
        with path.open("rb") as stream:
            packed = np.load(stream, allow_pickle=False)
            if not isinstance(packed, np.lib.npyio.NpzFile):
                raise ValueError("one array, not an archive of arrays")
            arrays = {name: packed[name] for name in (*ARRAYS, "groups_train") if name in packed}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise bad_file(path, EXPECTED, error) from error
    lacking = [name for name in ARRAYS if name not in arrays]
    if lacking:
        raise bad_file(path, EXPECTED, f"it lacks {', '.join(lacking)}")
    return arrays


def arrays_sha256(path: Path) -> str:
    """One checksum over the bytes of the four arrays, so that the way of packing does not matter."""
    arrays = read_arrays(path)
    digest = hashlib.sha256()
    for name in ARRAYS:
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _channels_first(images: np.ndarray, path: Path) -> np.ndarray:
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[3] in (1, 3):
        return images.transpose(0, 3, 1, 2)
    raise bad_file(path, EXPECTED, f"images of shape {images.shape}, not (N, H, W) or (N, H, W, 1 or 3)")


def _group_numbers(groups: np.ndarray, count: int, path: Path) -> Tensor:
    """Groups numbered from 0 in sorted order, (N,)."""
    if groups.shape != (count,) or groups.dtype.kind not in "iuUS":
        raise bad_file(path, EXPECTED, f"groups_train is {groups.dtype} of shape {groups.shape}, not one per image")
    return torch.from_numpy(np.unique(groups, return_inverse=True)[1].astype(np.int64))
