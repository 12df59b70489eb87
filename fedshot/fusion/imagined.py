"""Images that a server makes for itself where it has none: noise, shapes, or draws from what clients told."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from fedshot.errors import UserError
from fedshot.fusion.rule import Member
from fedshot.local.pixels import FEWEST
from fedshot.models.procedural import dead_leaves
from fedshot.seeds import stream
from fedshot.task import Task, channels

_AT_ONCE = 2000  # procedural images


def noise_images(count: int, task: Task) -> Tensor:
    """Gaussian pixels with the mean and the deviation of the task's channels, (count, channels, H, W) uint8."""
    noise = torch.randn(count, *task.shape, generator=stream(task.seed, "imagined", "noise"))
    return stored(channels(task.mean, noise.device) + channels(task.std, noise.device) * noise)


def procedural_images(count: int, task: Task) -> Tensor:
    """Overlapping shapes of random colours, (count, channels, H, W) uint8."""
    number, height, width = task.shape
    draws, parts = stream(task.seed, "imagined", "procedural"), list[Tensor]()
    for start in range(0, count, _AT_ONCE):
        square = dead_leaves(min(_AT_ONCE, count - start), max(height, width), number, draws)
        parts.append(stored(square[:, :, :height, :width]))
    return torch.cat(parts)


def images_from_statistics(count: int, members: Sequence[Member], task: Task) -> Tensor:
    """Images drawn from the sections `class_pixels`, (count, channels, H, W) uint8.

    Every class that a client has described comes equally often, up to one. Its client k is drawn with probability
    n_kc / sum_j n_jc over those that described c. Coarse pixels are drawn from N(mean_kc, std_kc), each for itself, and
    made as large as an image (bilinear).
    """
    held = torch.tensor([m.upload.header.class_counts for m in members], dtype=torch.float64).T  # (C, K)
    held = held.masked_fill(held < FEWEST, 0)  # such classes were not described
    described = held.sum(1).nonzero().flatten()
    if len(described) == 0:
        raise UserError(
            f"no client holds {FEWEST} images of any class: none has told what its images look like; "
            "choose images=noise or images=public"
        )
    draws = stream(task.seed, "imagined", "statistics")
    classes = described[torch.arange(count) % len(described)]
    clients = torch.multinomial(held[classes], 1, generator=draws).flatten()
    sections = [m.upload.section("class_pixels") for m in members]
    mean, std = (torch.stack([s[name] for s in sections])[clients, classes] for name in ("mean", "std"))
    coarse = mean + std * torch.randn(mean.shape, generator=draws)
    return stored(functional.interpolate(coarse, task.shape[1:], mode="bilinear", align_corners=False))


def stored(pixels: Tensor) -> Tensor:
    """Pixels around [0, 1] as an image is stored."""
    return (255 * pixels).round().clamp(0, 255).to(torch.uint8)
