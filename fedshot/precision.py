"""How weights travel: float32, bfloat16, or int8 with one scale for each output channel."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedshot.spec import Precision

_SCALE = "#scale"  # suffix of the tensor that holds the scales of an int8 tensor


def travelling_type(tensor: Tensor, precision: Precision) -> torch.dtype:
    """As what a tensor of a model leaves; for int8, which needs a scale, see `pack`.

    >>> travelling_type(torch.zeros(2, 2), "bf16"), travelling_type(torch.zeros(2), "bf16")
    (torch.bfloat16, torch.float32)
    """
    half = precision == "bf16" and tensor.ndim > 1 and tensor.is_floating_point()
    return torch.bfloat16 if half else tensor.dtype


def pack(tensors: Mapping[str, Tensor], precision: Precision) -> dict[str, Tensor]:
    """Matrices and filters in the given precision; vectors, scalars and integers stay as they are.

    int8: q = round(w / s), s = max|w| / 127 for each row of the first axis.

    >>> packed = pack({"w": torch.tensor([[1.0, -0.5], [0.0, 0.0]])}, "int8")
    >>> packed["w"], packed["w#scale"]
    (tensor([[127, -64], [  0,   0]], dtype=torch.int8), tensor([0.0079, 0.0000]))
    """
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if precision != "int8" or tensor.ndim < 2 or not tensor.is_floating_point():
            packed[name] = tensor.to(travelling_type(tensor, precision))
        else:
            rows = tensor.flatten(1)
            scale = rows.abs().amax(1) / 127
            # a row of zeros has scale 0 and stays 0; a scale near the smallest float is rounded, hence the clamp
            quotient = rows / torch.where(scale > 0, scale, torch.ones_like(scale))[:, None]
            packed[name] = quotient.round().clamp(-127, 127).to(torch.int8).view_as(tensor)
            packed[name + _SCALE] = scale
    return packed


def unpack(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `pack`, up to its rounding, in float32."""
    plain: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith(_SCALE):
            continue
        scale = tensors.get(name + _SCALE)
        if scale is not None and tensor.dtype == torch.int8:
            plain[name] = tensor.float() * scale.view(-1, *[1] * (tensor.ndim - 1))
        else:
            plain[name] = tensor.float() if tensor.is_floating_point() else tensor
    return plain
