"""A folder of pictures of one's own, one subfolder per class.

FOLDER/train/CLASS/... and FOLDER/test/CLASS/..., or FOLDER/CLASS/..., of which a fifth of every class becomes the test
part. All images get one size: that of more than half of them, otherwise 32x32. They are grey if all of them are,
otherwise RGB. An optional FOLDER/groups.csv with the columns path,group says whose image each training image is.
"""

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedshot.data.checks import labelled, statistics
from fedshot.data.dataset import Dataset, Labelled
from fedshot.errors import UserError
from fedshot.seeds import stream

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"})
GREY = frozenset({"1", "L", "LA"})
DEEP = frozenset({"I", "F", "I;16", "I;16B", "I;16L", "I;16N"})  # more than 8 bits a channel
MIXED_SIZE = (32, 32)  # width, height, when no size holds the majority

Item = tuple[Path, str]  # a picture and its class


@dataclass(frozen=True)
class Form:
    """What all pictures are turned into."""

    width: int
    height: int
    mode: str  # "L" or "RGB"


def load_folder(folder: Path, name: str, seed: int) -> Dataset:
    """The pictures below `folder` as a data set; the seed draws the test part if the folder has none."""
    train, test = _listed(folder, seed)
    class_names = tuple(sorted({label for _, label in train}))
    strangers = sorted({label for _, label in test} - set(class_names))
    if strangers:
        raise UserError(f"{folder} has test classes without training images: {', '.join(strangers)}")
    form = _common_form([path for path, _ in (*train, *test)])
    train_part, test_part = (pictures_of(items, class_names, form, folder) for items in (train, test))
    mean, std = statistics(train_part.images)
    groups = _groups(folder, [path for path, _ in train])
    return Dataset(name, train_part, test_part, class_names, mean, std, augmentation="natural", groups=groups)


def _listed(folder: Path, seed: int) -> tuple[list[Item], list[Item]]:
    """Training and test pictures with their classes."""
    advice = "needs train/CLASS/ and test/CLASS/ with pictures, or CLASS/ with pictures for at least two classes"
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; an image folder {advice}")
    if (folder / "train").is_dir() != (folder / "test").is_dir():
        raise UserError(f"{folder} has only one of train/ and test/; an image folder {advice}")
    if (folder / "train").is_dir():
        train, test = items_of(folder / "train"), items_of(folder / "test")
    else:
        train, test = split(items_of(folder), seed)
    if len({label for _, label in train}) < 2 or not test:
        raise UserError(f"{folder} has too few pictures in class folders; an image folder {advice}")
    return train, test


def items_of(tree: Path) -> list[Item]:
    """The pictures below a folder of class folders, each with its class."""
    return [
        (path, label.name)
        for label in sorted(tree.iterdir())
        if label.is_dir() and not label.name.startswith(".")
        for path in sorted(label.rglob("*"))
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.name.startswith(".")
    ]


def split(items: list[Item], seed: int) -> tuple[list[Item], list[Item]]:
    """A fifth of every class, at least one picture, is drawn for the test part; a class with one picture trains.

    Each class draws from its own stream, so that a further class leaves the split of the others as it was.

    >>> train, test = split([(Path(f"{i}.png"), "cat") for i in range(5)] + [(Path("dog.png"), "dog")], seed=1)
    >>> len(train), len(test), test[0][1]
    (5, 1, 'cat')
    """
    chosen: set[Path] = set()
    for label in sorted({label for _, label in items}):
        paths = [path for path, owner in items if owner == label]
        count = max(1, round(len(paths) / 5)) if len(paths) > 1 else 0
        order = torch.randperm(len(paths), generator=stream(seed, "folder split", label))
        chosen |= {paths[i] for i in order[:count].tolist()}
    return [item for item in items if item[0] not in chosen], [item for item in items if item[0] in chosen]


def _common_form(paths: list[Path]) -> Form:
    """Reads the headers alone."""
    from PIL import Image

    sizes: Counter[tuple[int, int]] = Counter()
    modes = set()
    for path in paths:
        try:
            with Image.open(path) as picture:
                sizes[picture.size] += 1
                mode = picture.mode
        except Exception as error:  # a damaged picture can fail in any way
            raise _not_a_picture(path, error) from error
        if mode in DEEP:
            raise UserError(f"{path} has more than 8 bits a channel; save it with 8 bits, scaled as you want it")
        modes.add(mode)
    (width, height), count = sizes.most_common(1)[0]
    if count * 2 <= len(paths):
        width, height = MIXED_SIZE
    return Form(width, height, "L" if modes <= GREY else "RGB")


def pictures_of(items: list[Item], class_names: tuple[str, ...], form: Form, folder: Path) -> Labelled:
    """Pictures in one form, with the numbers of their classes."""
    from PIL import Image

    channels = 1 if form.mode == "L" else 3
    images = np.empty((len(items), channels, form.height, form.width), np.uint8)
    for i, (path, _) in enumerate(items):
        try:
            with Image.open(path) as picture:
                converted = picture.convert(form.mode)
        except Exception as error:  # a damaged picture can fail in any way
            raise _not_a_picture(path, error) from error
        if converted.size != (form.width, form.height):
            converted = converted.resize((form.width, form.height), Image.Resampling.BILINEAR)
        pixels = np.asarray(converted).reshape(form.height, form.width, channels)
        images[i] = pixels.transpose(2, 0, 1)
    number = {name: i for i, name in enumerate(class_names)}
    return labelled(images, np.array([number[label] for _, label in items]), len(class_names), folder)


def _not_a_picture(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is not a picture that can be read ({error}); replace or remove it")


def _groups(folder: Path, train: list[Path]) -> Tensor | None:
    """The group of every training picture, numbered from 0 in sorted order, or None without groups.csv."""
    path = folder / "groups.csv"
    if not path.exists():
        return None
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            table = csv.DictReader(stream)
            if not {"path", "group"} <= set(table.fieldnames or ()):
                raise UserError(f"{path} must start with the line path,group")
            owner = {Path(row["path"]).as_posix(): row["group"] for row in table}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as a table ({error}); it needs the columns path,group") from error
    names = [picture.relative_to(folder).as_posix() for picture in train]
    lacking = [name for name in names if not owner.get(name)]
    if lacking:
        raise UserError(f"{path} gives no group for {len(lacking)} training pictures, the first is {lacking[0]}")
    number = {group: i for i, group in enumerate(sorted({owner[name] for name in names}))}
    return torch.tensor([number[owner[name]] for name in names])
