"""Attacks to try a screen on: a client of a finished run, turned into one that poisons.

The attacker is consistent: whatever it does to its model, the statistics in its upload are those of that model.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from fedshot.errors import UserError, unknown
from fedshot.local.train import train
from fedshot.local.work import upload_of
from fedshot.method import Client
from fedshot.models import Classifier
from fedshot.models.copies import copy_of
from fedshot.server import Reception
from fedshot.setting import Setting
from fedshot.store import RunFolder

_FACTOR = 10.0

Poisoned = Callable[[Setting, Client, Classifier], Classifier]  # from a client and its honest model


@torch.no_grad()
def scaled(setting: Setting, client: Client, honest: Classifier) -> Classifier:
    """All parameters ten times as large."""
    return _changed(honest, setting.initial_model, lambda now, start: _FACTOR * now)


@torch.no_grad()
def boosted(setting: Setting, client: Client, honest: Classifier) -> Classifier:
    """Ten times as far from the shared start: model replacement, Bagdasaryan et al. 2020 (arXiv:1807.00459)."""
    return _changed(honest, setting.initial_model, lambda now, start: start + _FACTOR * (now - start))


@torch.no_grad()
def sign_flip(setting: Setting, client: Client, honest: Classifier) -> Classifier:
    """As far from the shared start, the other way."""
    return _changed(honest, setting.initial_model, lambda now, start: 2 * start - now)


def random_weights(setting: Setting, client: Client, honest: Classifier) -> Classifier:
    """A model that was never trained, from another seed: what a free rider sends."""
    return setting.method.model(replace(setting.task, seed=setting.task.seed + 1000)).to(setting.device)


def label_flip(setting: Setting, client: Client, honest: Classifier) -> Classifier:
    """Trained on its own images under wrong labels, c as C - 1 - c."""
    wrong = flipped(client)
    train(wrong, setting.method.objective(wrong), setting.method.views, setting.spec, lambda epoch, model, row: None)
    return wrong.model


ATTACKS: dict[str, Poisoned] = {
    "label_flip": label_flip,
    "scaled": scaled,
    "boosted": boosted,
    "random_weights": random_weights,
    "sign_flip": sign_flip,
}


def flipped(client: Client) -> Client:
    """The client with its labels turned round."""
    last = client.task.classes - 1
    train_part = replace(client.train, labels=last - client.train.labels)
    held_out = replace(client.validation, labels=last - client.validation.labels) if client.validation else None
    return replace(client, train=train_part, validation=held_out, class_counts=client.class_counts[::-1])


def poison(setting: Setting, folder: RunFolder, number: int, kind: str) -> None:
    """Replaces the upload of a client in the folder of a run by a poisoned one."""
    if kind not in ATTACKS:
        raise unknown("attack", kind, ATTACKS)
    client = setting.client(number)
    if isinstance(client, str):
        raise UserError(f"client {number} cannot attack: {client}")
    honest = Reception(setting, ("weights",)).admit(folder.upload(number), number).model
    model = ATTACKS[kind](setting, client, honest)
    holder = flipped(client) if kind == "label_flip" else client
    folder.write_upload(upload_of(setting, holder, model, setting.method.statistics))


def _changed(honest: Classifier, start: Classifier, change: Callable) -> Classifier:
    """A copy with every parameter changed; statistics of BatchNorm stay, a negative variance would be refused."""
    model, begun = copy_of(honest), dict(start.named_parameters())
    for name, parameter in model.named_parameters():
        parameter.copy_(change(parameter, begun[name]))
    return model
