"""Whether an upload is one of the job: names, shapes, types and values are checked before anything is loaded."""

import math
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from fedshot.errors import UploadRefused
from fedshot.precision import pack
from fedshot.sections import STATISTICS, Section, Shape, Sizes
from fedshot.stored import StoredTensor
from fedshot.upload import Upload

Kind = tuple[torch.dtype, Shape]


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
    if header.counts == "withheld":
        if len(set(header.class_counts)) != 1:
            raise UploadRefused("class counts are withheld, and yet they differ from class to class")
    elif sum(header.class_counts) != header.samples:
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
        types = known[name].types if name in known else {}
        expected |= {key: (types.get(key, torch.float32), shape) for key, shape in shapes.items()}
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
