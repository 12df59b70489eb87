"""An encoder with a head on it."""

from torch import Tensor, nn

from fedshot.models.encoder import Encoder
from fedshot.models.heads import DualHead, PrototypeHead
from fedshot.models.wiring import FEATURES, Wiring


class Classifier(nn.Module):
    """Normalised images (B, channels, H, W) to logits (B, C)."""

    def __init__(self, encoder: Encoder, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.encoder(images))

    def features(self, images: Tensor) -> Tensor:
        """Raw features (B, d), before any normalisation."""
        return self.encoder(images)

    def wiring(self) -> Wiring:
        """The channel groups of the whole network; a head's input columns follow the encoder's last group."""
        columns: tuple[str, ...] = getattr(self.head, "feature_columns", ())
        head = Wiring(dict.fromkeys(columns, (None, FEATURES)))
        return self.encoder.wiring().within("encoder") | head.within("head")


def prototypes_of(model: Classifier) -> Tensor | None:
    """The model's trainable prototypes P (C, d), or None where its head has none."""
    head = model.head.prototype if isinstance(model.head, DualHead) else model.head
    return head.prototypes if isinstance(head, PrototypeHead) else None
