"""Partition files: a header and the index lists, as JSON for people or NPZ for large data sets; no pickle."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedshot.errors import UserError
from fedshot.partition.pools import Indices

FORMAT = "fedshot partition 1"


def write(path: Path, header: dict[str, Any], indices: Sequence[Indices]) -> None:
    """Write a partition file; its folder is made if there is none. The header holds the `sizes` of the lists."""
    suffix = _suffix(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {"format": FORMAT, **header}
    if suffix == ".json":
        path.write_text(json.dumps({**header, "indices": [part.tolist() for part in indices]}) + "\n", encoding="utf-8")
    else:
        np.savez_compressed(path, header=np.array(json.dumps(header)), indices=np.concatenate(indices))


def read(path: Path) -> tuple[dict[str, Any], list[Indices]]:
    """The header and the index lists of a partition file; a UserError if it is none."""
    suffix = _suffix(path)
    try:
        header, parts = _read_json(path) if suffix == ".json" else _read_npz(path)
        _check(header, parts)
        return header, [_distinct_indices(np.asarray(part)) for part in parts]
    except FileNotFoundError:
        raise UserError(
            f"there is no partition file {str(path)!r}: check the name, or save a partition first"
        ) from None
    except Exception as error:  # whatever a damaged file makes the readers raise
        raise UserError(f"{str(path)!r} is not a partition file: give a .json or .npz that fedshot saved") from error


def _suffix(path: Path) -> str:
    if path.suffix not in (".json", ".npz"):
        raise UserError(f"the partition file {str(path)!r} has an unknown ending: give a name in .json or .npz")
    return path.suffix


def _read_json(path: Path) -> tuple[dict[str, Any], list[Any]]:
    header = json.loads(path.read_text(encoding="utf-8"))
    return header, header.pop("indices")


def _read_npz(path: Path) -> tuple[dict[str, Any], list[Any]]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        header = json.loads(str(arrays["header"]))
        return header, np.split(arrays["indices"], np.cumsum(header["sizes"])[:-1])


def _check(header: dict[str, Any], parts: list[Any]) -> None:
    """That the header is that of a partition with as many clients as there are lists."""
    known = header["format"] == FORMAT and isinstance(header["recipe"], str) and isinstance(header["parameters"], dict)
    counts = header["class_counts"]
    if not known or not parts or np.ndim(counts) != 2 or len(counts) != len(parts):
        raise ValueError("not the header of a partition")


def _distinct_indices(part: np.ndarray) -> Indices:
    """One client's list: distinct whole numbers from 0."""
    is_whole = np.issubdtype(part.dtype, np.signedinteger) or part.size == 0
    if part.ndim != 1 or not is_whole or part.min(initial=0) < 0 or len(np.unique(part)) != len(part):
        raise ValueError("not a list of distinct indices")
    return part.astype(np.int64)
