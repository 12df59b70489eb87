"""What leaves a client: named tensors in sections, and a small typed header. It has exact bytes and a content hash.

Sections: `weights` (the model), `moments` (mean and deviation of raw features), `class_means` (of raw features),
`familiarity` (class means and covariance of unit features, and distances of held-out images). A fusion rule names the
sections that it needs; only those are sent and counted.
"""

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from fedshot import __version__
from fedshot.errors import UploadRefused
from fedshot.precision import pack, unpack
from fedshot.spec import Precision

SECTIONS = ("weights", "moments", "class_means", "familiarity")


class Header(BaseModel):
    """The typed part of an upload."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    client: int = Field(ge=0)
    samples: int = Field(ge=1)
    class_counts: tuple[int, ...]
    method: str
    precision: Precision = "fp32"
    validation_accuracy: float | None = Field(default=None, ge=0, le=1)
    fedshot: str = __version__


@dataclass(frozen=True)
class Upload:
    """One client's only message. Tensor names are `section/name`."""

    header: Header
    tensors: Mapping[str, Tensor]

    @property
    def sections(self) -> frozenset[str]:
        return frozenset(name.partition("/")[0] for name in self.tensors)

    def section(self, name: str) -> dict[str, Tensor]:
        """The tensors of a section, without its prefix, in float32."""
        prefix = f"{name}/"
        return unpack({key.removeprefix(prefix): t for key, t in self.tensors.items() if key.startswith(prefix)})

    def only(self, sections: Collection[str]) -> "Upload":
        """The upload without the other sections."""
        return replace(self, tensors={k: t for k, t in self.tensors.items() if k.partition("/")[0] in sections})

    def to_bytes(self) -> bytes:
        """The message as it travels: safetensors, the header in its metadata. Equal uploads have equal bytes."""
        return to_safetensors(dict(self.tensors), metadata={"fedshot": self.header.model_dump_json()})

    @property
    def sha256(self) -> str:
        """Hash of the content: tensors and what is counted, not which method or version made them."""
        digest = hashlib.sha256()
        content = self.header.model_dump(exclude={"method", "fedshot"})
        digest.update(json.dumps(content, sort_keys=True).encode())
        for name, tensor in sorted(self.tensors.items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
        return digest.hexdigest()


def make_upload(header: Header, sections: Mapping[str, Mapping[str, Tensor]]) -> Upload:
    """An upload on the CPU. Weights travel in the header's precision, statistics in float32."""
    tensors: dict[str, Tensor] = {}
    for section, content in sections.items():
        plain = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in content.items()}
        packed = pack(plain, header.precision) if section == "weights" else plain
        tensors |= {f"{section}/{name}": t for name, t in packed.items()}
    return Upload(header, tensors)


def parse(message: bytes, limit: int | None = None) -> Upload:
    """Bytes to an upload; refuses what is no upload of ours. `validate` then compares it with the job."""
    if limit is not None and len(message) > limit:
        raise UploadRefused(f"{len(message):,} bytes exceed the limit of {limit:,}")
    try:
        tensors = parse_safetensors(message)
        size = int.from_bytes(message[:8], "little")
        header = Header.model_validate_json(json.loads(message[8 : 8 + size])["__metadata__"]["fedshot"])
    except (SafetensorError, ValidationError, KeyError, ValueError, TypeError) as error:
        raise UploadRefused(f"not a fedshot upload: {str(error).splitlines()[0]}") from None
    return Upload(header, tensors)


def validate(upload: Upload, model: Mapping[str, Tensor], width: int, needs: Collection[str]) -> None:
    """Refuses an upload whose names, shapes, types or values are not those of the job.

    Args:
        model: the state of a model as every client has it: names, shapes and kinds of the weights.
        width: d, the width of a feature.
        needs: the sections that must be there.
    """
    header, classes = upload.header, len(upload.header.class_counts)
    if min(header.class_counts, default=0) < 0 or sum(header.class_counts) != header.samples:
        raise UploadRefused(f"class counts add up to {sum(header.class_counts)}, not to {header.samples} samples")
    if missing := sorted(set(needs) - upload.sections):
        raise UploadRefused(f"section {', '.join(missing)} is missing")
    if strange := sorted(upload.sections - set(SECTIONS)):
        raise UploadRefused(f"unknown section {', '.join(strange)}")
    expected: dict[str, dict[str, tuple[int | None, ...]]] = {
        "weights": {name: tuple(t.shape) for name, t in model.items()},
        "moments": {"mean": (width,), "std": (width,)},
        "class_means": {"means": (classes, width)},
        "familiarity": {"means": (classes, width), "covariance": (width, width), "distances": (None,)},
    }
    for section in sorted(upload.sections):
        _check_section(section, upload.section(section), expected[section])
    for name, tensor in upload.section("weights").items():
        if tensor.is_floating_point() != model[name].is_floating_point():
            raise UploadRefused(f"weights/{name} has type {tensor.dtype}, expected {model[name].dtype}")


def _check_section(section: str, given: Mapping[str, Tensor], expected: Mapping[str, tuple[int | None, ...]]) -> None:
    if given.keys() != expected.keys():
        odd = sorted(given.keys() ^ expected.keys())
        raise UploadRefused(f"{section}: {len(odd)} missing or unknown tensors, the first is {odd[0]!r}")
    for name, tensor in given.items():
        shape = expected[name]
        if len(shape) != tensor.ndim or any(w not in (None, g) for w, g in zip(shape, tensor.shape, strict=True)):
            raise UploadRefused(f"{section}/{name} has shape {tuple(tensor.shape)}, expected {shape}")
        if not math.isfinite(tensor.double().abs().sum().item()):
            raise UploadRefused(f"{section}/{name} holds values that are not finite")
