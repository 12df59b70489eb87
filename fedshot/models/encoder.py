"""What every encoder is: normalised images to raw features, and the wiring of its channels."""

from abc import ABC, abstractmethod

from torch import nn

from fedshot.models.wiring import Wiring


class Encoder(nn.Module, ABC):
    """Images (B, channels, H, W), normalised float, to raw features (B, width)."""

    width: int

    @abstractmethod
    def wiring(self) -> Wiring:
        """The channel groups, the last one `FEATURES`; UserError where channels cannot be matched."""
