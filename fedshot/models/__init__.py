"""Encoders, heads, and the classifier made of one of each."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

from fedshot.errors import unknown
from fedshot.models.classifier import Classifier, prototypes_of
from fedshot.models.cnn import cnn
from fedshot.models.encoder import Encoder
from fedshot.models.heads import DualHead, EtfHead, LinearHead, PrototypeHead, unit
from fedshot.models.mobilenet import MobileNetV2
from fedshot.models.resnet import resnet18, resnet34, resnet50
from fedshot.models.vit import vit
from fedshot.models.wiring import Wiring
from fedshot.seeds import stream_seed
from fedshot.task import Task

Module = TypeVar("Module", bound=nn.Module)

__all__ = [
    "ENCODERS",
    "Classifier",
    "DualHead",
    "Encoder",
    "EtfHead",
    "LinearHead",
    "PrototypeHead",
    "Wiring",
    "build",
    "default_encoder",
    "initial_encoder",
    "prototypes_of",
    "unit",
]

# From the shape of an image (channels, height, width) and the norm ("batch" or "group") to an encoder.
ENCODERS: dict[str, Callable[[tuple[int, int, int], str], Encoder]] = {
    "cnn": cnn,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
    "mobilenet_v2": MobileNetV2,
    "vit": vit,
}


def default_encoder(shape: tuple[int, int, int]) -> str:
    """The encoder for images of that shape (channels, height, width) when none is named.

    >>> default_encoder((1, 28, 28)), default_encoder((3, 32, 32))
    ('cnn', 'resnet18')
    """
    return "cnn" if max(shape[1:]) <= 28 else "resnet18"


def build(task: Task, head: Callable[[int, int], nn.Module]) -> Classifier:
    """The model with which every client of the task starts.

    The encoder and the head draw from streams of their own: methods with different heads share the
    encoder's initial weights, and torch's global random state is neither read nor moved.

    Args:
        head: from the encoder's width and the number of classes to a head.
    """
    encoder = initial_encoder(task)
    return Classifier(encoder, _drawn(task.seed, "head", lambda: head(encoder.width, task.classes)))


def initial_encoder(task: Task) -> Encoder:
    """The encoder with which every client of the task starts: drawn from the seed, or trained before."""
    if task.encoder not in ENCODERS:
        raise unknown("encoder", task.encoder, ENCODERS)
    encoder = _drawn(task.seed, "encoder", lambda: ENCODERS[task.encoder](task.shape, task.norm))
    if task.pretrained is not None:
        task.pretrained.into(encoder)
    return encoder


def _drawn(seed: int, part: str, make: Callable[[], Module]) -> Module:
    """A module whose initial weights come from that part's stream."""
    # torch.manual_seed would reseed the accelerators too, which the fork does not restore.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(stream_seed(seed, "weights", part))
        return make()
