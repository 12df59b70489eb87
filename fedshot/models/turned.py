"""A classifier that is trained to tell how an image is turned as well, and looks at every turn when it answers."""

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


def turn_at_random(images: Tensor, labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Each image in one of its turns, and its joint label, class · T + turn: the two together are a class of their own.

    Self-supervised label augmentation, Lee et al. 2020 (arXiv:1910.05872).
    """
    turned = all_turns(images)
    drawn = torch.rand(len(images), generator=generator, device=images.device)
    turn = (drawn * len(turned)).long().clamp(max=len(turned) - 1)  # a float32 below 1 may round up
    return turned[turn, torch.arange(len(images), device=images.device)], labels * len(turned) + turn


class TurnedClassifier(Classifier):
    """A prototype head for joint labels (class, turn). Its features at inference are those of all turns, side by side.

    features(x) = [unit(h(x_1)), …, unit(h(x_T))] / √T with x_t the image in turn t, so that a class's logit is the mean
    over turns of unit(h(x_t)) · p_(c, t). Training reads `encoder` and `head`, one turn at a time.
    """

    def __init__(self, encoder: Encoder, head: nn.Module, turns: int) -> None:
        super().__init__(encoder, head)
        self.turns = turns

    @property
    def width(self) -> int:
        return self.turns * self.encoder.width

    def features(self, images: Tensor) -> Tensor:
        """(B, T · d), of norm 1."""
        turned = [unit(self.encoder(view)) for view in all_turns(images)]
        return torch.cat(turned, dim=1) / self.turns**0.5

    def upright(self) -> Classifier:
        joint = self.head.get_parameter("prototypes").detach()
        return Classifier(self.encoder, PrototypeHead.of(joint[:: self.turns].clone()))

    def answering_head(self) -> nn.Module:
        joint = self.head.get_parameter("prototypes").detach()  # (C · T, d)
        return PrototypeHead.of(joint.reshape(-1, self.width) / self.turns**0.5).requires_grad_(False)
