"""What every encoder is: normalised images to raw features, and the wiring of its channels."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from fedshot.models.wiring import Wiring


class Encoder(nn.Module, ABC):
    """Images (B, channels, H, W), normalised float, to raw features (B, width)."""

    width: int

    @abstractmethod
    def wiring(self) -> Wiring:
        """The channel groups, the last one `FEATURES`; UserError where channels cannot be matched."""


def mean_over_positions(maps: Tensor) -> Tensor:
    """Maps (B, width, h, w) to features (B, width).

    Taken in the order in which maps lie in memory, channels last, so that the gradient comes back in it.
    """
    return maps.permute(0, 2, 3, 1).flatten(1, 2).mean(dim=1)
