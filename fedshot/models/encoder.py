"""What every encoder is: normalised images to raw features, stage by stage, and the wiring of its channels."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from fedshot.models.wiring import Wiring


@dataclass(frozen=True)
class Stage:
    """One step of a forward pass, and the children or parameters of the encoder that it is made of."""

    parts: tuple[str, ...]
    run: Callable[[Tensor], Tensor]

    def holds(self, entry: str) -> bool:
        """Whether a state entry belongs to it.

        >>> [Stage(("layers.1",), nn.Identity()).holds(name) for name in ("layers.1.weight", "layers.10.weight")]
        [True, False]
        """
        return any(entry == part or entry.startswith(f"{part}.") for part in self.parts)


class Encoder(nn.Module, ABC):
    """Images (B, channels, H, W), normalised float, to raw features (B, width)."""

    width: int

    @abstractmethod
    def in_order(self) -> tuple[Stage, ...]:
        """The stages of the forward pass: images go through all of them, every state entry belongs to one of them."""

    @abstractmethod
    def wiring(self) -> Wiring:
        """The channel groups, the last one `FEATURES`; UserError where channels cannot be matched."""

    def forward(self, images: Tensor) -> Tensor:
        return self.through(images, 0)

    def through(self, maps: Tensor, first: int, last: int | None = None) -> Tensor:
        """What the stages from `first` on, and before `last`, make of what the stage before them made."""
        for stage in self.in_order()[first:last]:
            maps = stage.run(maps)
        return maps

    def entries(self, stages: int) -> tuple[str, ...]:
        """The names of the state entries of the first stages."""
        first = self.in_order()[:stages]
        return tuple(name for name in self.state_dict() if any(stage.holds(name) for stage in first))


def mean_over_positions(maps: Tensor) -> Tensor:
    """Maps (B, width, h, w) to features (B, width).

    Taken in the order in which maps lie in memory, channels last, so that the gradient comes back in it.
    """
    return maps.permute(0, 2, 3, 1).flatten(1, 2).mean(dim=1)


def pooled(stage: nn.Module) -> Callable[[Tensor], Tensor]:
    """The last stage of a convolutional encoder: its maps averaged over positions."""
    return lambda maps: mean_over_positions(stage(maps))
