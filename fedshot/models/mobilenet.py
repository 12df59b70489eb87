"""MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381)."""

import math
from itertools import accumulate, pairwise

from torch import Tensor, nn

from fedshot.models.encoder import Encoder, Stage, pooled
from fedshot.models.layers import ConvNorm
from fedshot.models.wiring import Wiring, not_wired

# Table 2 of the paper: expansion, channels, repeats, and whether the stage halves the map at full size.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def halvings(side: int) -> int:
    """How often the map is halved: all five times from 64 pixels on, below that until about 4x4 are left.

    >>> [halvings(side) for side in (8, 16, 28, 32, 64, 224)]
    [1, 2, 3, 3, 5, 5]
    """
    return 5 if side >= 64 else max(1, round(math.log2(side / 4)))


class InvertedResidual(nn.Module):
    """Expand by 1x1, filter each channel by 3x3, project by 1x1 without activation; add the input if shapes agree."""

    def __init__(self, channels: tuple[int, int], expansion: int, stride: int, norm: str) -> None:
        super().__init__()
        inside = channels[0] * expansion
        expand = [ConvNorm((channels[0], inside), norm, kernel=1, activation=nn.ReLU6)] if expansion > 1 else []
        self.body = nn.Sequential(
            *expand,
            ConvNorm((inside, inside), norm, stride=stride, groups=inside, activation=nn.ReLU6),
            ConvNorm((inside, channels[1]), norm, kernel=1, activation=nn.Identity),
        )
        self.adds = channels[0] == channels[1] and stride == 1

    def forward(self, maps: Tensor) -> Tensor:
        return maps + self.body(maps) if self.adds else self.body(maps)


class MobileNetV2(Encoder):
    """The ImageNet layout; for images below 64 pixels the first of its five strides of 2 become 1."""

    width = 1280

    def __init__(self, shape: tuple[int, int, int], norm: str) -> None:
        super().__init__()
        spared = 5 - halvings(min(shape[1:]))  # so many of the strides of 2, counted from the stem, become 1
        layers: list[nn.Module] = [ConvNorm((shape[0], 32), norm, stride=1 if spared else 2, activation=nn.ReLU6)]
        before, strided = 32, 1
        for expansion, channels, repeats, stride in STAGES:
            if stride == 2:
                strided += 1
                stride = 1 if strided <= spared else 2
            for index in range(repeats):
                layers.append(InvertedResidual((before, channels), expansion, stride if index == 0 else 1, norm))
                before = channels
        layers.append(ConvNorm((before, self.width), norm, kernel=1, activation=nn.ReLU6))
        self.layers = nn.Sequential(*layers)

    def in_order(self) -> tuple[Stage, ...]:
        """The stem, the stages of the paper's table, the last 1x1 convolution."""
        starts = accumulate((repeats for _, _, repeats, _ in STAGES), initial=1)
        blocks = (
            Stage(tuple(f"layers.{index}" for index in range(start, end)), self.layers[start:end])
            for start, end in pairwise(starts)
        )
        last = f"layers.{len(self.layers) - 1}"
        return Stage(("layers.0",), self.layers[0]), *blocks, Stage((last,), pooled(self.layers[-1]))

    def wiring(self) -> Wiring:
        raise not_wired("mobilenet_v2")
