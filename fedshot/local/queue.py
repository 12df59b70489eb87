"""A memory of the features of past steps."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

NOBODY = -1  # the class of an entry that is no feature of an image


@dataclass(frozen=True)
class Queue:
    """Unit features with their classes, first in, first out, in tensors that keep their place on the device.

    Every push has the same shapes, whatever was pushed before, so that a step with one can be captured and replayed.
    """

    features: Tensor  # (M, d)
    labels: Tensor  # (M,)
    place: Tensor  # 0-dim, where the next feature goes
    count: Tensor  # 0-dim, how many entries exist

    @classmethod
    def empty(cls, size: int, width: int, device: torch.device) -> "Queue":
        """A queue of that size without entries."""
        none = torch.zeros((), dtype=torch.int64, device=device)
        labels = torch.full((size,), NOBODY, device=device)
        return cls(torch.zeros(size, width, device=device), labels, none, none.clone())

    @classmethod
    def random(cls, size: int, width: int, device: torch.device, generator: torch.Generator) -> "Queue":
        """A queue full of random unit vectors of no class; the generator is on the CPU."""
        queue = cls.empty(size, width, device)
        queue.push(F.normalize(torch.randn(size, width, generator=generator), dim=1).to(device), queue.labels.clone())
        return queue

    @property
    def filled(self) -> Tensor:
        """Which entries exist, (M,) bool."""
        return torch.arange(len(self.labels), device=self.labels.device) < self.count

    @torch.no_grad()
    def push(self, features: Tensor, labels: Tensor) -> None:
        """Takes in the features of a step, (B, d), in the place of the oldest; of more than fit the last ones stay."""
        size = len(self.labels)
        features, labels = features[-size:], labels[-size:]
        slots = (self.place + torch.arange(len(labels), device=labels.device)) % size
        self.features.index_copy_(0, slots, features)
        self.labels.index_copy_(0, slots, labels)
        self.place.add_(len(labels)).remainder_(size)
        self.count.add_(len(labels)).clamp_(max=size)

    def own_share(self, labels: Tensor) -> Tensor:
        """How much of the queue is of an anchor's own class, in the mean over anchors of these classes (B,); 0-dim.

        >>> queue = Queue.empty(4, 2, torch.device("cpu"))
        >>> queue.push(torch.eye(2), torch.tensor([0, 1]))
        >>> queue.own_share(torch.tensor([0, 0]))
        tensor(0.5000)
        """
        own = (labels[:, None] == self.labels) & self.filled  # (B, M)
        return own.sum() / (len(labels) * self.count.clamp(min=1))
