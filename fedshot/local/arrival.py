"""Tensors on their way between host and device, for which nobody waits."""

import torch
from torch import Tensor


class Arrival:
    """A copy of a tensor on its way to the host."""

    def __init__(self, tensor: Tensor) -> None:
        on_gpu = tensor.device.type == "cuda"
        self.tensor = torch.empty_like(tensor, device="cpu", pin_memory=on_gpu)
        self.tensor.copy_(tensor, non_blocking=True)
        self._event = torch.cuda.Event() if on_gpu else None
        if self._event:
            self._event.record()

    def ready(self) -> bool:
        """Whether it is there."""
        return self._event is None or self._event.query()

    def wait(self) -> Tensor:
        """The copy, once it is there."""
        if self._event:
            self._event.synchronize()
        return self.tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device, without waiting until it is there: work that is launched later finds it."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
