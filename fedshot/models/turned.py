"""A classifier that is trained to tell how an image is turned as well, and looks at every turn when it answers."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedshot.models.classifier import Classifier
from fedshot.models.encoder import Encoder
from fedshot.models.heads import PrototypeHead, unit


def turns_of(shape: tuple[int, int, int]) -> int:
    """How many turns keep the shape (channels, height, width): quarters of a square image, halves of any other.

    >>> turns_of((3, 32, 32)), turns_of((1, 28, 20))
    (4, 2)
    """
    return 4 if shape[1] == shape[2] else 2


def all_turns(images: Tensor) -> Tensor:
    """Images (B, channels, H, W) in each of their turns, (T, B, channels, H, W)."""
    channels, height, width = images.shape[1:]
    turns = turns_of((channels, height, width))
    return torch.stack([torch.rot90(images, turn * 4 // turns, (2, 3)) for turn in range(turns)])


def turn_shares(class_counts: Sequence[int], turns: int) -> Tensor:
    """How often a client with so many images of each class shows an image in each turn, (T,); the first is upright.

    Turning teaches what labels do not: a client of one class turns by chance alone, one that holds as much of every
    class not at all. Between them the share of images that are turned by chance falls with the entropy H of the
    client's classes, 1 - H / log C.

    >>> turn_shares([9, 0], 4), turn_shares([4, 4], 2)
    (tensor([0.2500, 0.2500, 0.2500, 0.2500]), tensor([1., 0.]))
    """
    held = torch.tensor([count for count in class_counts if count], dtype=torch.float64)
    entropy = torch.special.entr(held / held.sum()).sum().item()
    by_chance = 1 - entropy / math.log(len(class_counts)) if len(class_counts) > 1 else 1.0
    shares = torch.full((turns,), max(0.0, by_chance) / turns)
    shares[0] = 1 - shares[1:].sum()
    return shares


def turn_at_random(images: Tensor, labels: Tensor, shares: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Each image in one of its turns, and its joint label, class · T + turn: the two together are a class of their own.

    Self-supervised label augmentation, Lee et al. 2020 (arXiv:1910.05872).

    Args:
        shares: how often each turn is drawn, (T,).
    """
    turned = all_turns(images)
    drawn = torch.rand(len(images), generator=generator, device=images.device)
    turn = (drawn[:, None] >= shares[:-1].cumsum(0)).sum(1)
    return turned[turn, torch.arange(len(images), device=images.device)], labels * len(turned) + turn


class TurnedClassifier(Classifier):
    """A prototype head for joint labels (class, turn). Its features at inference are those of all turns, side by side.

    features(x) = [√u_1 unit(h(x_1)), …, √u_T unit(h(x_T))] with x_t the image in turn t and u_t its share in training,
    so that a class's logit is the mean over turns of unit(h(x_t)) · p_(c, t). Training reads `encoder` and `head`, one
    turn at a time.
    """

    shares: Tensor  # u, (T,)

    def __init__(self, encoder: Encoder, head: nn.Module, turns: int) -> None:
        super().__init__(encoder, head)
        self.turns = turns
        self.register_buffer("shares", torch.full((turns,), 1 / turns))

    @torch.no_grad()
    def begin(self, class_counts: Sequence[int]) -> None:
        self.shares.copy_(turn_shares(class_counts, self.turns), non_blocking=True)

    @property
    def width(self) -> int:
        return self.turns * self.encoder.width

    def features(self, images: Tensor) -> Tensor:
        """(B, T · d), of norm 1."""
        turned = [unit(self.encoder(view)) for view in all_turns(images)]
        return torch.cat([length * one for length, one in zip(self._lengths(), turned, strict=True)], dim=1)

    def _lengths(self) -> Tensor:
        """Of the features of each turn, (T,)."""
        return self.shares.clamp(min=0).sqrt()

    def upright(self) -> Classifier:
        joint = self.head.get_parameter("prototypes").detach()
        return Classifier(self.encoder, PrototypeHead.of(joint[:: self.turns].clone()))

    def answering_head(self) -> nn.Module:
        joint = self.head.get_parameter("prototypes").detach()  # (C · T, d)
        weighted = joint.unflatten(0, (-1, self.turns)) * self._lengths()[:, None]  # (C, T, d)
        return PrototypeHead.of(weighted.flatten(1)).requires_grad_(False)
