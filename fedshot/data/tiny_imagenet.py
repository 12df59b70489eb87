"""Tiny-ImageNet-200 (Stanford CS231n): 64x64 JPEG files, in a folder or in the published zip.

The published validation part is the test part here. Its labels come from val_annotations.txt: the images all lie in
one folder, and code that takes the folder's name for the class scores every image as wrong.
"""

import io
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from fedshot.data.checks import bad_file, labelled
from fedshot.data.dataset import Labelled
from fedshot.data.source import Parts

FOLDER = "tiny-imagenet-200"
ARCHIVE = f"{FOLDER}.zip"
ANNOTATIONS = f"{FOLDER}/val/val_annotations.txt"
EXPECTED = "the published Tiny-ImageNet"

Fetch = Callable[[str], bytes]  # a name inside the folder or the archive to its content


def read_folder(place: Path) -> Parts:
    """The unpacked folder tiny-imagenet-200 below `place`."""
    pictures = (place / FOLDER).glob("train/*/images/*.JPEG")
    return _read([path.relative_to(place).as_posix() for path in pictures], _from_folder(place), place / FOLDER)


def read_archive(place: Path) -> Parts:
    """The published zip, read without unpacking it to the disk."""
    path = place / ARCHIVE
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive.namelist(), archive.read, path)
    except (OSError, zipfile.BadZipFile, zlib.error) as error:
        raise bad_file(path, EXPECTED, error) from error


def _from_folder(place: Path) -> Fetch:
    def fetch(name: str) -> bytes:
        try:
            return (place / name).read_bytes()
        except FileNotFoundError as error:
            raise KeyError(name) from error

    return fetch


def _read(names: Iterable[str], fetch: Fetch, where: Path) -> Parts:
    """Classes are numbered in the sorted order of their WordNet names."""
    train = sorted(
        name
        for name in names
        if name.startswith(f"{FOLDER}/train/") and name.endswith(".JPEG") and name.count("/") == 4
    )
    class_names = tuple(sorted({name.split("/")[2] for name in train}))
    number = {name: i for i, name in enumerate(class_names)}
    test = _annotations(fetch, where)
    strangers = sorted({label for _, label in test} - set(number))
    if not train or strangers:
        found = f"{ANNOTATIONS} names classes without training images: {', '.join(strangers[:3])}"
        raise bad_file(where, EXPECTED, found if train else "no training images")
    return Parts(
        _pictures(train, [number[name.split("/")[2]] for name in train], fetch, where),
        _pictures([name for name, _ in test], [number[label] for _, label in test], fetch, where),
        class_names,
    )


def _annotations(fetch: Fetch, where: Path) -> list[tuple[str, str]]:
    """Name and class of every validation image."""
    try:
        rows = [line.split("\t") for line in fetch(ANNOTATIONS).decode().splitlines() if line]
    except (KeyError, OSError, UnicodeDecodeError) as error:
        raise bad_file(where, EXPECTED, f"{ANNOTATIONS} is missing or not text") from error
    if not rows or any(len(row) < 2 for row in rows):
        raise bad_file(where, EXPECTED, f"{ANNOTATIONS} has lines without file name and class")
    return [(f"{FOLDER}/val/images/{row[0]}", row[1]) for row in rows]


def _pictures(names: list[str], labels: list[int], fetch: Fetch, where: Path) -> Labelled:
    from PIL import Image

    images = np.empty((len(names), 3, 64, 64), np.uint8)
    for i, name in enumerate(names):
        try:
            with Image.open(io.BytesIO(fetch(name))) as picture:
                pixels = np.asarray(picture.convert("RGB"))  # (64, 64, 3); some of the published files are grey
        except KeyError as error:
            raise bad_file(where, EXPECTED, f"{name} is missing") from error
        except Exception as error:  # a damaged picture can fail in any way
            raise bad_file(where, EXPECTED, f"{name} is not a picture: {error}") from error
        if pixels.shape != (64, 64, 3):
            raise bad_file(where, EXPECTED, f"{name} is {pixels.shape[1]}x{pixels.shape[0]}, not 64x64")
        images[i] = pixels.transpose(2, 0, 1)
    return labelled(images, np.array(labels), max(labels) + 1, where)
