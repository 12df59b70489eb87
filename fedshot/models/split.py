"""Encoders that share their first stages and keep the others to themselves."""

from torch import Tensor, nn

from fedshot.models.encoder import Encoder, Stage
from fedshot.models.wiring import Wiring


class Base(nn.Module):
    """The first stages of an encoder, one module for all who share it: images to what the next stage reads."""

    def __init__(self, encoder: Encoder, stages: int) -> None:
        super().__init__()
        self.encoder, self.stages = encoder, stages

    def forward(self, images: Tensor) -> Tensor:
        return self.encoder.through(images, 0, self.stages)


class SplitEncoder(Encoder):
    """A base that others share, and after it the later stages of an encoder of its own."""

    def __init__(self, base: Base, own: Encoder) -> None:
        super().__init__()
        self.base, self.own, self.width = base, own, own.width

    def after_base(self, maps: Tensor) -> Tensor:
        """What the base made to raw features (B, width)."""
        return self.own.through(maps, self.base.stages)

    def in_order(self) -> tuple[Stage, ...]:
        return Stage(("base",), self.base), Stage(("own",), self.after_base)

    def wiring(self) -> Wiring:
        return self.own.wiring().within("own")
