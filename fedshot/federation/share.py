"""One client's private data as a file: the images and labels of its part of a data set, with the names of the labels.

`fedshot partition --export FOLDER` writes one for each client of a rehearsal. Nothing is unpickled.
"""

import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch

from fedshot.data.checks import bad_file, labelled
from fedshot.data.dataset import Dataset, Labelled
from fedshot.partition import Partition

EXPECTED = "a share of a data set"


def write_shares(data: Dataset, partition: Partition, folder: Path) -> list[Path]:
    """share-K.npz for every client, in the order of the partition; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, indices in enumerate(partition.indices):
        part = data.train[torch.from_numpy(indices)]
        files.append(folder / f"share-{number}.npz")
        with files[-1].open("wb") as stream:
            np.savez_compressed(
                stream,
                images=part.images.numpy(),
                labels=part.labels.numpy(),
                class_names=np.array(data.class_names, dtype=np.str_),
            )
    return files


def read_share(path: Path) -> tuple[Labelled, tuple[str, ...]]:
    """The images with their labels, and the names of the labels."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            images, labels, names = (arrays[name] for name in ("images", "labels", "class_names"))
    except FileNotFoundError:
        raise bad_file(path, EXPECTED, "there is no such file") from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise bad_file(path, EXPECTED, error) from error
    if names.ndim != 1 or names.dtype.kind != "U":
        raise bad_file(path, EXPECTED, "its class_names are not a list of names")
    if len(labels) == 0 and images.ndim == 4 and images.dtype == np.uint8:
        return Labelled(torch.from_numpy(images), torch.empty(0, dtype=torch.int64)), tuple(names.tolist())
    return labelled(images, labels, len(names), path), tuple(names.tolist())
