"""Tensors that stay in the file of an upload until they are asked for."""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedshot.errors import UserError


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that stays in the file of an upload that was checked, and is read when it is asked for."""

    file: Path
    start: int  # of its bytes in the file
    dtype: torch.dtype
    shape: tuple[int, ...]
    sha256: str

    def read(self) -> Tensor:
        """The tensor as it was checked; refuses any other bytes."""
        content = bytearray(self.dtype.itemsize * math.prod(self.shape))
        try:
            with self.file.open("rb") as file:
                file.seek(self.start)
                file.readinto(content)
        except FileNotFoundError:
            raise UserError(f"{self.file} is gone since it was checked: fuse again without it") from None
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise UserError(f"{self.file} has changed since it was checked: fuse again, so that it is checked again")
        flat = torch.frombuffer(content, dtype=self.dtype) if content else torch.empty(0, dtype=self.dtype)
        return flat.view(self.shape)


def read(tensor: Tensor | StoredTensor) -> Tensor:
    """The tensor itself."""
    return tensor.read() if isinstance(tensor, StoredTensor) else tensor


def sha256(tensor: Tensor | StoredTensor) -> str:
    """Hash of a tensor's bytes; a stored one is not read for it."""
    if isinstance(tensor, StoredTensor):
        return tensor.sha256
    return hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy().data).hexdigest()
