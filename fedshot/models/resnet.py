"""Residual networks for small images (He et al. 2016, arXiv:1512.03385)."""

from collections.abc import Callable

from torch import nn

from fedshot.models.encoder import Encoder, Stage, pooled
from fedshot.models.layers import ConvNorm, Residual, basic_block, bottleneck
from fedshot.models.wiring import FEATURES, Wiring

Block = Callable[[tuple[int, int], int, str], Residual]  # (in, out), stride, norm


class ResNet(Encoder):
    """A 3x3 stem of stride 1 without max-pool, four stages of strides 1, 2, 2, 2, the mean over the last map.

    Residual normalisations start at weight 1, like all others.
    """

    def __init__(self, channels: int, norm: str, block: Block, depths: tuple[int, ...], widths: tuple[int, ...]):
        super().__init__()
        self.stem = ConvNorm((channels, 64), norm)
        stages, before = [], 64
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            blocks = [block((before, width), 1 if stage == 0 else 2, norm)]
            blocks += [block((width, width), 1, norm) for _ in range(depth - 1)]
            stages.append(nn.Sequential(*blocks))
            before = width
        self.stages = nn.Sequential(*stages)
        self.width = before

    def in_order(self) -> tuple[Stage, ...]:
        *stages, last = (Stage((f"stages.{index}",), blocks) for index, blocks in enumerate(self.stages))
        return Stage(("stem",), self.stem), *stages, Stage(last.parts, pooled(self.stages[-1]))

    def wiring(self) -> Wiring:
        group = "stem"
        wiring = self.stem.wiring(None, group).within("stem")
        for stage, blocks in enumerate(self.stages.children()):
            for index, block in enumerate(blocks.children()):
                assert isinstance(block, Residual)
                name = f"stages.{stage}.{index}"
                last = stage == len(self.stages) - 1
                # A block without a shortcut adds to what it reads, so that both are one group.
                target = group if block.shortcut is None else FEATURES if last else f"stages.{stage}"
                wiring |= block.wiring(group, target, name).within(name)
                group = target
        return wiring


def resnet18(shape: tuple[int, int, int], norm: str) -> ResNet:
    """512 features; 11,168,832 parameters for three channels."""
    return ResNet(shape[0], norm, basic_block, (2, 2, 2, 2), (64, 128, 256, 512))


def resnet34(shape: tuple[int, int, int], norm: str) -> ResNet:
    """512 features."""
    return ResNet(shape[0], norm, basic_block, (3, 4, 6, 3), (64, 128, 256, 512))


def resnet50(shape: tuple[int, int, int], norm: str) -> ResNet:
    """2048 features; bottleneck blocks with the stride on the 3x3 convolution."""
    return ResNet(shape[0], norm, bottleneck, (3, 4, 6, 3), (256, 512, 1024, 2048))
