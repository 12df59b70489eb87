"""What leaves a client: named tensors in sections, and a small typed header. It has exact bytes and a content hash.

Sections: `weights` (the model), `moments` (mean and deviation of raw features), `class_means` (of raw features),
`familiarity` (class means and covariance of unit features, and distances of held-out images). A fusion rule names the
sections that it needs; only those are sent and counted.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
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
from fedshot.spec import Precision, first_problem

SECTIONS = ("weights", "moments", "class_means", "familiarity")

Count = Annotated[int, Field(ge=0, le=10**9)]
Kind = tuple[torch.dtype, tuple[int | None, ...]]  # type and shape of a tensor; None for a length that is free


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


def size_limit(model: Mapping[str, Tensor], width: int, classes: int, held_out: int) -> int:
    """More bytes than any upload of the job can have: all sections in float32, and room for names and header.

    Args:
        held_out: how many distances a client may upload.
    """
    statistics = 2 * width + 2 * classes * width + width * width + held_out
    return 4 * (sum(t.numel() for t in model.values()) + statistics) + 256 * (len(model) + 6) + 2**16


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


def validate(upload: Upload, model: Mapping[str, Tensor], width: int, needs: Collection[str]) -> None:
    """Refuses an upload whose names, shapes, types or values are not those of the job.

    Args:
        model: the state of a model as every client has it: names, shapes and kinds of the weights.
        width: d, the width of a feature.
        needs: the sections that must be there.
    """
    header = upload.header
    if sum(header.class_counts) != header.samples:
        raise UploadRefused(f"class counts add up to {sum(header.class_counts)}, not to {header.samples} samples")
    if missing := sorted(set(needs) - upload.sections):
        raise UploadRefused(f"section {', '.join(missing)} is missing")
    if strange := sorted(upload.sections - set(SECTIONS)):
        raise UploadRefused(f"unknown section {', '.join(strange)}")
    expected = _layout(model, width, len(header.class_counts), header.precision)
    for section in sorted(upload.sections):
        prefix = f"{section}/"
        given = {name: t for name, t in upload.tensors.items() if name.startswith(prefix)}
        _check_layout(given, {prefix + name: kind for name, kind in expected[section].items()})
        for name, tensor in upload.section(section).items():
            if not tensor.isfinite().all():
                raise UploadRefused(f"{section}/{name} holds values that are not finite")
    _check_statistics(upload)


def _layout(model: Mapping[str, Tensor], width: int, classes: int, precision: Precision) -> dict[str, dict[str, Kind]]:
    """Every tensor that an upload of the job may carry, by section: what `make_upload` writes."""
    packed = pack(model, precision)
    statistics: dict[str, dict[str, tuple[int | None, ...]]] = {
        "moments": {"mean": (width,), "std": (width,)},
        "class_means": {"means": (classes, width)},
        "familiarity": {"means": (classes, width), "covariance": (width, width), "distances": (None,)},
    }
    return {
        "weights": {name: (t.dtype, tuple(t.shape)) for name, t in packed.items()},
        **{section: {n: (torch.float32, shape) for n, shape in known.items()} for section, known in statistics.items()},
    }


def _check_layout(given: Mapping[str, Tensor], expected: Mapping[str, Kind]) -> None:
    for what, odd in (("missing", expected.keys() - given.keys()), ("unknown", given.keys() - expected.keys())):
        if odd:
            more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
            raise UploadRefused(f"{what} tensor {min(odd)!r}{more}")
    for name, tensor in given.items():
        dtype, shape = expected[name]
        if tensor.dtype != dtype:
            raise UploadRefused(f"{name} has type {tensor.dtype}, expected {dtype}".replace("torch.", ""))
        if len(shape) != tensor.ndim or any(w not in (None, g) for w, g in zip(shape, tensor.shape, strict=True)):
            raise UploadRefused(f"{name} has shape {tuple(tensor.shape)}, expected {shape}")


def _check_statistics(upload: Upload) -> None:
    """Refuses statistics that no data can have: a fusion rule would fail on them, or trust them wrongly."""
    if "moments" in upload.sections and (upload.section("moments")["std"] < 0).any():
        raise UploadRefused("moments/std is negative")
    if "familiarity" not in upload.sections:
        return
    covariance, distances = (upload.section("familiarity")[name] for name in ("covariance", "distances"))
    if (distances < 0).any() or (distances.diff() < 0).any():
        raise UploadRefused("familiarity/distances are not ascending from 0 or more")
    symmetric = torch.allclose(covariance, covariance.T, rtol=1e-3, atol=1e-6)
    # of fewer samples than dimensions a covariance is singular; rounding may turn its zeros into small negatives
    ridge = 0.1 * covariance.diagonal().mean().clamp(min=1e-8) * torch.eye(len(covariance))
    if not symmetric or torch.linalg.cholesky_ex(covariance + ridge).info != 0:
        raise UploadRefused("familiarity/covariance is not the covariance of anything")
