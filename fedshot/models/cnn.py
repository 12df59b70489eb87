"""A small residual network that trains on one CPU core."""

from itertools import pairwise

from torch import nn

from fedshot.models.encoder import Encoder, Stage, pooled
from fedshot.models.layers import ConvNorm, Residual, basic_block
from fedshot.models.wiring import FEATURES, Wiring


class Cnn(Encoder):
    """A stem, then convolutions of stride 2 with one residual block after the first of them, a 1x1 expansion, the mean.

    `widths` are the channels of the stem and of each halving after it. The expansion to 512 features is ResNet-18's
    width: FAFI's prototypes are about sqrt(width) long, so the width sets how large its logits can be.
    """

    def __init__(self, channels: int, norm: str, stem_stride: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = ConvNorm((channels, widths[0]), norm, stride=stem_stride)
        halvings = [ConvNorm(pair, norm, stride=2) for pair in pairwise(widths)]
        self.layers = nn.Sequential(halvings[0], basic_block((widths[1], widths[1]), 1, norm), *halvings[1:])
        self.width = 512
        self.layers.append(ConvNorm((widths[-1], self.width), norm, kernel=1))

    def in_order(self) -> tuple[Stage, ...]:
        *layers, last = (Stage((f"layers.{index}",), layer) for index, layer in enumerate(self.layers))
        return Stage(("stem",), self.stem), *layers, Stage(last.parts, pooled(self.layers[-1]))

    def wiring(self) -> Wiring:
        group = "stem"
        wiring = self.stem.wiring(None, group).within("stem")
        for index, layer in enumerate(self.layers):
            name = f"layers.{index}"
            if isinstance(layer, Residual):
                wiring |= layer.wiring(group, group, name).within(name)
            elif isinstance(layer, ConvNorm):
                target = FEATURES if index == len(self.layers) - 1 else name
                wiring |= layer.wiring(group, target).within(name)
                group = target
        return wiring


def cnn(shape: tuple[int, int, int], norm: str) -> Cnn:
    """512 features; images beyond 16 pixels a side are halved by the stem and once more on the way."""
    if max(shape[1:]) <= 16:
        return Cnn(shape[0], norm, 1, (32, 64, 128))
    return Cnn(shape[0], norm, 2, (32, 64, 128, 256))
