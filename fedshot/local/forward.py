"""The heavy parts of a step as functions of tensors and modules alone; `fused` runs them by our own GPU kernels."""

import torch
from torch import Tensor

from fedshot.local.half import HalfWeights
from fedshot.local.views import view
from fedshot.models.encoder import Encoder
from fedshot.models.layers import FUSED
from fedshot.task import Task, channels


def inputs_of(images: Tensor, draws: Tensor, plain: bool, task: Task, fused: bool = False) -> Tensor:
    """What an encoder reads of B images: V augmented views of each, then perhaps the images as they are; normalised.

    As the task says: the views are made of pixels, or of images that are normalised before their views are once more.
    Without augmentation a view is the image as a model is asked about it.

    Args:
        images: (B, channels, H, W) uint8.
        draws: for V*B views.
    """
    if task.augmentation == "none":
        return task.prepare(images.repeat(draws.shape[1] // len(images) + plain, 1, 1, 1))
    twice = task.normalisation == "twice" and task.augmentation == "natural"
    if fused and task.augmentation == "natural" and images.shape[1] == 3 and not twice:
        from fedshot.kernels.views import natural_inputs

        inputs = natural_inputs(images, draws, channels(task.mean, images.device), channels(task.std, images.device))
    else:
        shown = task.prepare(images) if twice else images
        repeated = shown.repeat(draws.shape[1] // len(images), 1, 1, 1)
        inputs = task.normalise(view(repeated, draws, "natural_of_normalised" if twice else task.augmentation))
    return torch.cat([inputs, task.prepare(images)]) if plain else inputs


def encode(
    encoder: Encoder, inputs: Tensor, precision: str, fused: bool = False, half: HalfWeights | None = None
) -> Tensor:
    """Raw features in float32, for training; the encoder computes in the precision asked for.

    Args:
        half: the encoder's weights in bf16, where they are not left to autocast.
    """
    before = FUSED.set(fused)
    try:
        if half is not None:
            return half.encode(encoder, inputs).float()
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=precision == "bf16"):
            return encoder(inputs).float()
    finally:
        FUSED.reset(before)
