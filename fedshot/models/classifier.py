"""An encoder with a head on it."""

from collections.abc import Sequence

from torch import Tensor, nn

from fedshot.models.encoder import Encoder
from fedshot.models.heads import DualHead, PrototypeHead
from fedshot.models.wiring import FEATURES, Wiring


class Classifier(nn.Module):
    """Normalised images (B, channels, H, W) to logits (B, C).

    Training reads `encoder` and `head`; inference asks for `features`, and for the `logits` that follow from them.
    """

    def __init__(self, encoder: Encoder, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def begin(self, class_counts: Sequence[int]) -> None:
        """Settles what depends on how much a client holds of each class, before it trains: for most models nothing."""

    @property
    def width(self) -> int:
        """d, of `features`."""
        return self.encoder.width

    def forward(self, images: Tensor) -> Tensor:
        return self.logits(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        """Raw features (B, d), before any normalisation."""
        return self.encoder(images)

    def answering_head(self) -> nn.Module:
        """The head that classifies `features`."""
        return self.head

    def upright(self) -> "Classifier":
        """The model that looks at an image as it is, and no other way."""
        return self

    def logits(self, features: Tensor) -> Tensor:
        """Logits (B, C) of `features`."""
        return self.answering_head()(features)

    def wiring(self) -> Wiring:
        """The channel groups of the whole network; a head's input columns follow the encoder's last group."""
        columns: tuple[str, ...] = getattr(self.head, "feature_columns", ())
        head = Wiring(dict.fromkeys(columns, (None, FEATURES)))
        return self.encoder.wiring().within("encoder") | head.within("head")


def prototypes_of(model: Classifier) -> Tensor | None:
    """The model's trainable prototypes P (C, d), or None where its head has none."""
    head = model.head.prototype if isinstance(model.head, DualHead) else model.head
    return head.prototypes if isinstance(head, PrototypeHead) else None
