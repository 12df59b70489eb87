"""bf16 copies of an encoder's matrices, all made by one kernel a step where autocast takes one for each of them."""

import torch
from torch import Tensor, nn

from fedshot.models.encoder import Encoder


class HalfWeights:
    """Weights of convolutions and linear maps, laid side by side in memory in float32, with a bf16 copy that trains.

    Rounding is autocast's: weights are rounded for the forward pass, gradients come back in bf16 and are widened.
    """

    def __init__(self, encoder: Encoder) -> None:
        layers = {name: m for name, m in encoder.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)}
        self._weights = {f"{name}.weight": layer.weight for name, layer in layers.items()}
        sizes = [weight.numel() for weight in self._weights.values()]
        some = next(encoder.parameters())
        self._full = some.new_empty(sum(sizes))
        self._half = torch.empty_like(self._full, dtype=torch.bfloat16)
        self._slopes = torch.empty_like(self._full)
        self._copies: dict[str, Tensor] = {}
        for (name, weight), full, half in zip(
            self._weights.items(), self._full.split(sizes), self._half.split(sizes), strict=True
        ):
            placed = _like(weight, full)
            placed.copy_(weight.detach())
            weight.data = placed
            self._copies[name] = _like(weight, half).requires_grad_()

    def encode(self, encoder: Encoder, inputs: Tensor) -> Tensor:
        """The encoder with its weights rounded to bf16."""
        with torch.no_grad():
            self._half.copy_(self._full)
        for copy in self._copies.values():
            copy.grad = None
        with torch.autocast(inputs.device.type, torch.bfloat16):
            return torch.func.functional_call(encoder, self._copies, (inputs,))

    @torch.no_grad()
    def widen_gradients(self) -> None:
        """Adds the gradients that the copies got to those of the float32 weights, which a term may read as well."""
        found = {name: copy.grad for name, copy in self._copies.items() if copy.grad is not None}
        if not found:
            return
        sizes = [grad.numel() for grad in found.values()]
        regions = self._slopes[: sum(sizes)].split(sizes)
        slopes = [_like(self._weights[name], region) for name, region in zip(found, regions, strict=True)]
        torch._foreach_copy_(slopes, list(found.values()))
        for name, slope in zip(found, slopes, strict=True):
            weight = self._weights[name]
            weight.grad = slope if weight.grad is None else slope.add_(weight.grad)


def _like(weight: Tensor, region: Tensor) -> Tensor:
    """A stretch of memory seen with the shape and the order of axes of a weight."""
    return region.as_strided(weight.shape, weight.stride(), region.storage_offset())
