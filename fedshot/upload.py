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
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from fedshot import __version__
from fedshot.errors import UploadRefused
from fedshot.precision import pack, unpack
from fedshot.sections import STATISTICS, Section, Shape, Sizes
from fedshot.spec import Precision, first_problem
from fedshot.stored import StoredTensor, read, sha256

SECTIONS = ("weights", *STATISTICS)

Count = Annotated[int, Field(ge=0, le=10**9)]
Kind = tuple[torch.dtype, Shape]

_TYPES = {torch.int64: "I64", torch.float32: "F32", torch.bfloat16: "BF16", torch.int8: "I8"}  # as safetensors says


class Header(BaseModel):
    """The typed part of an upload."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    client: Count
    samples: Annotated[Count, Field(ge=1)]
    class_counts: tuple[Count, ...]
    method: str
    precision: Precision = "fp32"
    validation_accuracy: float | None = Field(default=None, ge=0, le=1)
    fedshot: str = __version__


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
        tensors = {name: read(tensor) for name, tensor in self.tensors.items()}
        return to_safetensors(tensors, metadata={"fedshot": self.header.model_dump_json()})

    @property
    def size(self) -> int:
        """The length of `to_bytes`, from names, types and shapes alone: no tensor is read."""
        table: dict[str, object] = {"__metadata__": {"fedshot": self.header.model_dump_json()}}
        end = 0
        # safetensors puts the widest types first, then goes by name, and pads the table to a multiple of 8
        for name, tensor in sorted(self.tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])):
            begin, end = end, end + tensor.dtype.itemsize * math.prod(tensor.shape)
            table[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
        return 8 + math.ceil(len(text) / 8) * 8 + end

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


def make_upload(header: Header, sections: Mapping[str, Mapping[str, Tensor]]) -> Upload:
    """An upload on the CPU. Weights travel in the header's precision, statistics in float32."""
    tensors: dict[str, Tensor] = {}
    for section, content in sections.items():
        plain = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in content.items()}
        packed = pack(plain, header.precision) if section == "weights" else plain
        tensors |= {f"{section}/{name}": t for name, t in packed.items()}
    return Upload(header, tensors)


def size_limit(
    model: Mapping[str, Tensor], sizes: Sizes, images: int, known: Mapping[str, Section] = STATISTICS
) -> int:
    """More bytes than any upload of the job can have: all sections in float32, and room for names and header.

    Args:
        images: how many a client can hold at most: the limit of a length that is free.
    """
    shapes = [shape for section in known.values() for shape in section.layout(sizes).values()]
    statistics = sum(math.prod(images if length is None else length for length in shape) for shape in shapes)
    return 4 * (sum(t.numel() for t in model.values()) + statistics) + 256 * (len(model) + len(shapes)) + 2**16


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


def validate(
    upload: Upload,
    model: Mapping[str, Tensor],
    sizes: Sizes,
    needs: Collection[str],
    known: Mapping[str, Section] = STATISTICS,
) -> None:
    """Refuses an upload whose names, shapes, types or values are not those of the job.

    Args:
        model: the state of a model as every client has it: names, shapes and kinds of the weights.
        sizes: the width of a feature, the number of classes, the shape of an image.
        needs: the sections that must be there.
        known: the statistics that the job knows.
    """
    header = upload.header
    if sum(header.class_counts) != header.samples:
        raise UploadRefused(f"class counts add up to {sum(header.class_counts)}, not to {header.samples} samples")
    if missing := sorted(set(needs) - upload.sections):
        raise UploadRefused(f"section {', '.join(missing)} is missing")
    if strange := sorted(upload.sections - {"weights", *known}):
        raise UploadRefused(f"unknown section {', '.join(strange)}")
    held = torch.tensor(header.class_counts) > 0
    for name in sorted(upload.sections):
        shapes = known[name].layout(sizes) if name in known else {}
        packed = pack(model, header.precision) if name == "weights" else {}
        expected: dict[str, Kind] = {key: (t.dtype, tuple(t.shape)) for key, t in packed.items()}
        expected |= {key: (torch.float32, shape) for key, shape in shapes.items()}
        _check_layout({k: t for k, t in upload.tensors.items() if k.startswith(f"{name}/")}, name, expected)
        content = upload.section(name)
        for key, tensor in content.items():
            if not tensor.isfinite().all():
                raise UploadRefused(f"{name}/{key} holds values that are not finite")
        if name in known and (complaint := known[name].complaint(content, held)):
            raise UploadRefused(f"{name}/{complaint}")


def _check_layout(given: Mapping[str, Tensor | StoredTensor], section: str, kinds: Mapping[str, Kind]) -> None:
    expected = {f"{section}/{name}": kind for name, kind in kinds.items()}
    for what, odd in (("missing", expected.keys() - given.keys()), ("unknown", given.keys() - expected.keys())):
        if odd:
            more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
            raise UploadRefused(f"{what} tensor {min(odd)!r}{more}")
    for name, tensor in given.items():
        dtype, shape = expected[name]
        if tensor.dtype != dtype:
            raise UploadRefused(f"{name} has type {tensor.dtype}, expected {dtype}".replace("torch.", ""))
        if len(shape) != len(tensor.shape) or any(w not in (None, g) for w, g in zip(shape, tensor.shape, strict=True)):
            raise UploadRefused(f"{name} has shape {tuple(tensor.shape)}, expected {shape}")
