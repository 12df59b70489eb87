"""A classifier that looks at an image and at its mirror when it answers."""

import torch
from torch import Tensor

from fedshot.models.classifier import Classifier


class MirroredClassifier(Classifier):
    """Another classifier's encoder and head, asked twice: its features are those of both, its logits their mean.

    For tasks to which an image and its mirror are one. Training reads `encoder` and `head`, as of any classifier.
    """

    def __init__(self, model: Classifier) -> None:
        super().__init__(model.encoder, model.head)

    @property
    def width(self) -> int:
        return 2 * self.encoder.width

    def features(self, images: Tensor) -> Tensor:
        """(B, 2 d): the image's, then its mirror's."""
        return torch.cat([self.encoder(images), self.encoder(images.flip(3))], dim=1)

    def logits(self, features: Tensor) -> Tensor:
        head = self.answering_head()
        return torch.stack([head(side) for side in features.chunk(2, dim=1)]).mean(0)
