"""An upload on its way from the device to the host, for which nobody waits."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedshot.local.arrival import Arrival
from fedshot.precision import pack, travelling_type
from fedshot.spec import Precision
from fedshot.upload import Header, Named, Upload, bytes_of, in_order, table


@dataclass(frozen=True)
class Flat:
    """Tensors that leave as one type, one after the other in the order of a message."""

    named: tuple[Named, ...]
    content: Tensor  # (n,), not yet of that type


@torch.no_grad()
def flattened(sections: Mapping[str, Mapping[str, Tensor]], precision: Precision) -> list[Flat]:
    """The sections of an upload apart from their originals: weights to leave in a precision, statistics as they are."""
    tensors = {f"{section}/{name}": tensor for section, own in sections.items() for name, tensor in own.items()}
    groups: dict[tuple[torch.dtype, torch.dtype], list[Named]] = {}
    for name, tensor in tensors.items():
        leaves_as = travelling_type(tensor, precision) if name.startswith("weights/") else tensor.dtype
        groups.setdefault((tensor.dtype, leaves_as), []).append((name, leaves_as, tensor.shape))
    return [
        Flat(order, torch.cat([tensors[name].reshape(-1) for name, *_ in order]))
        for order in map(in_order, groups.values())
    ]


@dataclass(frozen=True)
class _Part:
    """Tensors that leave as one type, in one transfer."""

    named: tuple[Named, ...]
    arrival: Arrival

    @property
    def dtype(self) -> torch.dtype:
        return self.named[0][1]

    def content(self) -> Tensor:
        """All of them, flat, once they are there."""
        return self.arrival.wait().to(self.dtype)

    def tensors(self) -> dict[str, Tensor]:
        pieces = self.content().split([math.prod(shape) for *_, shape in self.named])
        return {name: piece.view(shape) for (name, _, shape), piece in zip(self.named, pieces, strict=True)}


class Departure:
    """A header, and `flattened` tensors in its precision."""

    def __init__(self, header: Header, flats: Iterable[Flat]) -> None:
        self.header = header
        self._parts = [_Part(flat.named, Arrival(flat.content)) for flat in flats]

    def ready(self) -> bool:
        """Whether all of it is there."""
        return all(part.arrival.ready() for part in self._parts)

    def wait(self) -> Upload:
        """The upload, once it is there."""
        tensors = {name: tensor for part in self._parts for name, tensor in part.tensors().items()}
        if self.header.precision == "int8":
            weights = {name: tensor for name, tensor in tensors.items() if name.startswith("weights/")}
            tensors = {**{n: t for n, t in tensors.items() if n not in weights}, **pack(weights, "int8")}
        return Upload(self.header, tensors)

    def to_bytes(self) -> bytes:
        """The message, once it is there: that of `wait`, with no step for each tensor where none must be changed."""
        parts = {part.dtype: part for part in self._parts}
        if self.header.precision == "int8" or len(parts) < len(self._parts):
            return self.wait().to_bytes()
        order = in_order(named for part in self._parts for named in part.named)
        contents = [bytes_of(parts[dtype].content()) for dtype in dict.fromkeys(dtype for _, dtype, _ in order)]
        return b"".join([table(self.header, order), *contents])


def make_upload(header: Header, sections: Mapping[str, Mapping[str, Tensor]]) -> Upload:
    """An upload on the CPU."""
    return Departure(header, flattened(sections, header.precision)).wait()
