"""What a client holds: its private data in the numbers of a job, and the setting in which it trains on them."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from fedshot.data import load
from fedshot.data.dataset import Dataset, Labelled
from fedshot.data.folder import Form, items_of, pictures_of
from fedshot.errors import UserError
from fedshot.federation.order import Order
from fedshot.federation.share import read_share
from fedshot.federation.site import SiteFile
from fedshot.method import Method
from fedshot.methods import METHODS, make_method
from fedshot.own_rule import rule_of
from fedshot.partition import Partition
from fedshot.partition.own import OWN
from fedshot.pretrained import open_pretrained
from fedshot.privacy.check import check_privacy
from fedshot.privacy.policy import stricter
from fedshot.setting import Setting
from fedshot.task import Task
from fedshot.user_file import file_of

Named = tuple[Labelled, tuple[str, ...]]  # images, and the names of their labels


def client_setting(site: SiteFile, order: Order) -> Setting:
    """The setting of a job as one client sees it: its own data under its own number, and nothing of the others."""
    clients = order.spec.clients
    if site.number >= clients:
        raise UserError(f"this is client {site.number}, and the job has only the clients 0 to {clients - 1}")
    spec = order.spec.model_copy(update={"counts": stricter(order.spec.counts, site.counts)})
    method = method_of(order, site.files)
    if file_of(spec.fusion):
        raise UserError("the job asks for a fusion rule from a file: no code of the server's is run here")
    fusion = rule_of(method, spec.fusion)
    check_privacy(spec, method, fusion)
    train = own_data(site, order)
    nobody = Labelled(train.images[:0], train.labels[:0])
    data = Dataset(
        name=site.data,
        train=train,
        test=nobody,
        class_names=order.class_names,
        mean=order.mean,
        std=order.std,
        augmentation=spec.augmentation or "natural",
    )
    none = np.empty(0, dtype=np.int64)
    counts = np.zeros((clients, data.classes), dtype=np.int64)
    counts[site.number] = np.bincount(train.labels.numpy(), minlength=data.classes)
    indices = tuple(np.arange(len(train)) if k == site.number else none for k in range(clients))
    partition = Partition(indices, counts, len(train), OWN, {"clients": clients})
    return Setting(
        spec, method, fusion, data.to(site.device), partition, _task(order, site.files), torch.device(site.device)
    )


def method_of(order: Order, files: Sequence[Path]) -> Method:
    """The method of an order: one of ours, or of a file that this client was given by whoever runs it.

    No code travels. A method of a file, and a file that an option names, is used only if this client has the same one.
    """
    spec, options = order.spec, dict(order.spec.options)
    name, colon, function = spec.method.partition(":")
    reference = spec.method if spec.method in METHODS else _own_file(name, order, files) + colon + function
    for key, value in options.items():
        if key.rpartition(".")[2] == "file" and value:
            options[key] = _own_file(str(value), order, files)
    return make_method(reference, options)


def _task(order: Order, files: Sequence[Path]) -> Task:
    """What everybody knows; weights from which encoders start do not travel either."""
    if order.spec.pretrained is None:
        return order.task
    return replace(order.task, pretrained=open_pretrained(_own_file(order.spec.pretrained, order, files)))


def _own_file(path: str, order: Order, files: Sequence[Path]) -> str:
    """Where a file of the order lies at this client."""
    sha256 = order.spec.files.get(path)
    own = {hashlib.sha256(file.read_bytes()).hexdigest(): file for file in files}
    if sha256 not in own:
        raise UserError(
            f"the job needs the file {path} (sha256 {sha256}), and this client was not given it: get it from "
            'whoever runs the server, read it, and name it under "files" in site.json'
        )
    return str(own[sha256])


def own_data(site: SiteFile, order: Order) -> Labelled:
    """The client's private images, their labels in the numbers of the job; refuses what the job does not know."""
    found, names = _read(site, order)
    number = {name: i for i, name in enumerate(order.class_names)}
    held = sorted(set(found.labels.tolist()))
    if strange := [names[label] for label in held if names[label] not in number]:
        raise UserError(
            f"{site.data} has images of {_few(strange)}, and the job knows only {_few(order.class_names)}: rename the "
            "labels as the job does, or leave these images out"
        )
    if found.images.shape[1:] != order.shape:
        raise UserError(
            f"the images of {site.data} are {_in_words(tuple(found.images.shape[1:]))} (channels × height × width), "
            f"those of the job {_in_words(order.shape)}: bring them to that form first"
        )
    table = torch.tensor([number.get(name, -1) for name in names])
    return Labelled(found.images, table[found.labels] if len(found) else found.labels)


def _read(site: SiteFile, order: Order) -> Named:
    if site.data.endswith(".npz"):
        return read_share(Path(site.data))
    if site.data.startswith("folder:"):
        return _read_folder(Path(site.data.removeprefix("folder:")), order.shape)
    data = load(site.data, site.data_root, order.spec.seed)
    return data.train, data.class_names


def _read_folder(folder: Path, shape: tuple[int, int, int]) -> Named:
    """All pictures of FOLDER/train/CLASS/, or of FOLDER/CLASS/, in the form of the job. One class is enough."""
    tree = folder / "train" if (folder / "train").is_dir() else folder
    if not tree.is_dir():
        raise UserError(f"{folder} is not a folder: give one with a subfolder of pictures for each class")
    items = items_of(tree)
    if not items:
        raise UserError(f"{tree} has no pictures in subfolders: it needs one subfolder for each class")
    names = tuple(sorted({label for _, label in items}))
    channels, height, width = shape
    return pictures_of(items, names, Form(width, height, "L" if channels == 1 else "RGB"), folder), names


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _in_words(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
