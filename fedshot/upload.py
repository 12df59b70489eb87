"""What leaves a client: named tensors in sections, and a small typed header. It has exact bytes and a content hash.

The section `weights` is the model; the others are the statistics of `fedshot/sections.py`. A fusion rule names the
sections that it needs; only those are sent and counted.
"""

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import ConfigDict, Field, ValidationError, field_validator
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from torch import Tensor

from fedshot import __version__
from fedshot.errors import UploadRefused
from fedshot.grown import Grown
from fedshot.local.arrival import Arrival
from fedshot.precision import pack, unpack
from fedshot.privacy.policy import CountsPolicy
from fedshot.sections import STATISTICS, Shape
from fedshot.spec import Precision, first_problem
from fedshot.stored import StoredTensor, read, sha256

SECTIONS = ("weights", *STATISTICS)

Count = Annotated[int, Field(ge=0, le=10**9)]
Kind = tuple[torch.dtype, Shape]

_TYPES = {  # as safetensors says, and in its order
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int8: "I8",
}


class Header(Grown):
    """The typed part of an upload.

    `counts` says what the class counts are worth: exact; noised; or withheld, when they are a stand-in of equal
    numbers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    later: ClassVar[tuple[str, ...]] = ("counts",)

    client: Count
    samples: Annotated[Count, Field(ge=1)]
    class_counts: tuple[Count, ...]
    method: str
    precision: Precision = "fp32"
    validation_accuracy: float | None = Field(default=None, ge=0, le=1)
    fedshot: str = __version__
    counts: str = "exact"

    @field_validator("counts")
    @classmethod
    def _a_policy(cls, given: str) -> str:
        return str(CountsPolicy.parse(given))


@dataclass(frozen=True)
class Upload:
    """One client's only message. Tensor names are `section/name`; tensors may stay in a file until they are read."""

    header: Header
    tensors: Mapping[str, Tensor | StoredTensor]

    @property
    def sections(self) -> frozenset[str]:
        return frozenset(name.partition("/")[0] for name in self.tensors)

    def section(self, name: str) -> dict[str, Tensor]:
        """The tensors of a section, without its prefix, in float32."""
        prefix = f"{name}/"
        return unpack({key.removeprefix(prefix): read(t) for key, t in self.tensors.items() if key.startswith(prefix)})

    def only(self, sections: Collection[str]) -> "Upload":
        """The upload without the other sections."""
        return replace(self, tensors={k: t for k, t in self.tensors.items() if k.partition("/")[0] in sections})

    def to_bytes(self) -> bytes:
        """The message as it travels: safetensors, the header in its metadata. Equal uploads have equal bytes."""
        contents = (_bytes_of(read(self.tensors[name])) for name in self._order())
        return b"".join([self._table(), *contents])

    @property
    def size(self) -> int:
        """The length of `to_bytes`, from names, types and shapes alone: no tensor is read."""
        return len(self._table()) + sum(t.dtype.itemsize * math.prod(t.shape) for t in self.tensors.values())

    def _order(self) -> list[str]:
        """The tensors as safetensors puts them: the widest types first, then by name."""
        types = list(_TYPES)
        return sorted(self.tensors, key=lambda name: (types.index(self.tensors[name].dtype), name))

    def _table(self) -> bytes:
        """What the message begins with: its length, the header, and where each tensor lies; a multiple of 8."""
        table: dict[str, object] = {"__metadata__": {"fedshot": self.header.model_dump_json()}}
        end = 0
        for name in self._order():
            tensor = self.tensors[name]
            begin, end = end, end + tensor.dtype.itemsize * math.prod(tensor.shape)
            table[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text

    @property
    def sha256(self) -> str:
        """Hash of the content: the tensors' hashes and what is counted, not which method or version made them."""
        digest = hashlib.sha256()
        content = self.header.model_dump(exclude={"method", "fedshot"})
        digest.update(json.dumps(content, sort_keys=True).encode())
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {sha256(tensor)}".encode())
        return digest.hexdigest()

    def stored(self, file: Path, message: bytes) -> "Upload":
        """The upload with its tensors left in the file that holds its message."""
        size = 8 + int.from_bytes(message[:8], "little")
        table = json.loads(message[8:size])
        tensors = {
            name: StoredTensor(file, size + table[name]["data_offsets"][0], t.dtype, tuple(t.shape), sha256(t))
            for name, t in self.tensors.items()
        }
        return replace(self, tensors=tensors)


class Departure:
    """An upload on its way from the device to the host; tensors of one type come in one transfer.

    Its tensors are dense and apart from their originals. Weights travel in the header's precision, statistics as they
    are.
    """

    def __init__(self, header: Header, sections: Mapping[str, Mapping[str, Tensor]]) -> None:
        self._header, self._sections = header, {name: list(content) for name, content in sections.items()}
        tensors = {f"{section}/{name}": t.detach() for section, own in sections.items() for name, t in own.items()}
        self._parts: list[tuple[dict[str, torch.Size], Arrival]] = []
        for dtype in dict.fromkeys(t.dtype for t in tensors.values()):
            alike = {name: t for name, t in tensors.items() if t.dtype == dtype}
            arrival = Arrival(torch.cat([t.reshape(-1) for t in alike.values()]))
            self._parts.append(({name: t.shape for name, t in alike.items()}, arrival))

    def ready(self) -> bool:
        """Whether all of it is there."""
        return all(arrival.ready() for _, arrival in self._parts)

    def wait(self) -> Upload:
        """The upload, once it is there."""
        plain: dict[str, Tensor] = {}
        for shapes, arrival in self._parts:
            pieces = arrival.wait().split([shape.numel() for shape in shapes.values()])
            plain |= {name: piece.view(shapes[name]) for name, piece in zip(shapes, pieces, strict=True)}
        tensors: dict[str, Tensor] = {}
        for section, names in self._sections.items():
            own = {name: plain[f"{section}/{name}"] for name in names}
            packed = pack(own, self._header.precision) if section == "weights" else own
            tensors |= {f"{section}/{name}": t for name, t in packed.items()}
        return Upload(self._header, tensors)


def make_upload(header: Header, sections: Mapping[str, Mapping[str, Tensor]]) -> Upload:
    """An upload on the CPU."""
    return Departure(header, sections).wait()


def _bytes_of(tensor: Tensor) -> memoryview:
    """The content of a dense tensor on the CPU, as it lies in memory."""
    if tensor.dtype == torch.bfloat16:  # which numpy does not know
        tensor = tensor.view(torch.int16)
    return tensor.contiguous().numpy().reshape(-1).view(np.uint8).data


def parse(message: bytes, limit: int | None = None) -> Upload:
    """Bytes to an upload; refuses what is no upload of ours. `validate` then compares it with the job."""
    if limit is not None and len(message) > limit:
        raise UploadRefused(f"{len(message):,} bytes exceed the limit of {limit:,}")
    try:
        tensors = parse_safetensors(message)
        size = int.from_bytes(message[:8], "little")
        text = json.loads(message[8 : 8 + size])["__metadata__"]["fedshot"]
        header = Header.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise UploadRefused(f"not a fedshot upload: header: {first_problem(error)}") from None
    except (KeyError, TypeError):
        raise UploadRefused("not a fedshot upload: it has no header of ours") from None
    except (SafetensorError, ValueError) as error:
        raise UploadRefused(f"not a fedshot upload: {str(error).splitlines()[0]}") from None
    return Upload(header, tensors)
