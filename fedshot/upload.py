"""What leaves a client: named tensors in sections, and a small typed header. It has exact bytes and a content hash.

The section `weights` is the model; the others are the statistics of `fedshot/sections.py`. A fusion rule names the
sections that it needs; only those are sent and counted.
"""

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
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
from fedshot.precision import unpack
from fedshot.privacy.policy import CountsPolicy
from fedshot.sections import STATISTICS, Shape
from fedshot.spec import Precision, first_problem
from fedshot.stored import StoredTensor, read, sha256

SECTIONS = ("weights", *STATISTICS)

Count = Annotated[int, Field(ge=0, le=10**9)]
Kind = tuple[torch.dtype, Shape]
Named = tuple[str, torch.dtype, tuple[int, ...]]  # a tensor's name, type and shape

TYPES = {  # as safetensors says, and in its order
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
        order = in_order(self._named())
        return b"".join([table(self.header, order), *(bytes_of(read(self.tensors[name])) for name, *_ in order)])

    @property
    def size(self) -> int:
        """The length of `to_bytes`, from names, types and shapes alone: no tensor is read."""
        named = self._named()
        return len(table(self.header, in_order(named))) + sum(_size(dtype, shape) for _, dtype, shape in named)

    def _named(self) -> list[Named]:
        return [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self.tensors.items()]

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


def in_order(named: Iterable[Named]) -> tuple[Named, ...]:
    """The tensors as safetensors puts them: the widest types first, then by name."""
    types = list(TYPES)
    return tuple(sorted(named, key=lambda tensor: (types.index(tensor[1]), tensor[0])))


def table(header: Header, order: tuple[Named, ...]) -> bytes:
    """What a message begins with: its length, the header, and where each tensor lies; a multiple of 8."""
    said = json.dumps({"fedshot": header.model_dump_json()}, separators=(",", ":"), ensure_ascii=False)
    text = f'{{"__metadata__":{said}{_places(order)}}}'.encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


@lru_cache(maxsize=64)  # thousands of clients send tensors of the same names and shapes
def _places(order: tuple[Named, ...]) -> str:
    """Type, shape and place of each tensor, as further entries of a JSON object."""
    entries, end = "", 0
    for name, dtype, shape in order:
        begin, end = end, end + _size(dtype, shape)
        entry = {"dtype": TYPES[dtype], "shape": shape, "data_offsets": (begin, end)}
        entries += f",{json.dumps(name, ensure_ascii=False)}:{json.dumps(entry, separators=(',', ':'))}"
    return entries


def _size(dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    return dtype.itemsize * math.prod(shape)


def bytes_of(tensor: Tensor) -> memoryview:
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
