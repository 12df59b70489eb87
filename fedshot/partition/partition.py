"""A partition as a value: who holds what, its numbers, its fingerprint, its file."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedshot.errors import UserError
from fedshot.partition.files import read, write
from fedshot.partition.pools import Indices


@dataclass(frozen=True, eq=False)
class Partition:
    """The samples of every client. Two partitions are the same when their fingerprints are."""

    indices: tuple[Indices, ...]  # one array per client, ascending
    class_counts: Indices  # (K, C)
    samples: int  # N, of the whole data set
    recipe: str
    parameters: Mapping[str, int | float]

    @classmethod
    def of(
        cls,
        indices: Sequence[Indices],
        labels: Indices,
        recipe: str,
        parameters: Mapping[str, int | float],
        classes: int | None = None,
    ) -> "Partition":
        """Sort the index lists and count the labels in them.

        >>> part = Partition.of([np.array([2, 0]), np.array([1])], np.array([0, 1, 1]), "by hand", {})
        >>> part.class_counts.tolist()
        [[1, 1], [0, 1]]
        """
        largest = int(labels.max()) + 1
        columns = largest if classes is None else classes
        if columns < largest:
            raise UserError(f"labels go up to {largest - 1}, which needs {largest} classes, not {columns}")
        ordered = tuple(np.sort(np.asarray(part, dtype=np.int64)) for part in indices)
        counts = np.stack([np.bincount(labels[part], minlength=columns) for part in ordered]).astype(np.int64)
        return cls(ordered, counts, len(labels), recipe, dict(parameters))

    def without(self, taken: Indices, labels: Indices) -> "Partition":
        """The same partition after some samples were taken from whoever holds them; nothing else moves.

        >>> part = Partition.of([np.array([2, 0]), np.array([1])], np.array([0, 1, 1]), "by hand", {})
        >>> part.without(np.array([2]), np.array([0, 1, 1])).sizes
        (1, 1)
        """
        if len(taken) == 0:
            return self
        left = [np.setdiff1d(part, taken) for part in self.indices]
        return Partition.of(left, labels, self.recipe, self.parameters, self.class_counts.shape[1])

    @property
    def clients(self) -> int:
        return len(self.indices)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Samples of each client, (K,)."""
        return tuple(len(part) for part in self.indices)

    @property
    def entropy_bits(self) -> tuple[float, ...]:
        """Shannon entropy −Σ_c p_c·log2 p_c of each client's labels, (K,); 0 for an empty client."""
        shares = self.class_counts / np.maximum(self.class_counts.sum(axis=1, keepdims=True), 1)
        surprise = -np.log2(np.where(shares > 0, shares, 1.0))
        return tuple((shares * surprise).sum(axis=1).tolist())

    @property
    def overlap(self) -> float:
        """Share of the handed-out distinct samples that two or more clients hold; 0 for disjoint clients."""
        holders = self._holders()
        return float((holders >= 2).sum() / max((holders >= 1).sum(), 1))

    @property
    def unassigned(self) -> int:
        """Samples that nobody holds."""
        return int((self._holders() == 0).sum())

    def _holders(self) -> Indices:
        """How many clients hold each sample, (N,)."""
        return np.bincount(np.concatenate(self.indices), minlength=self.samples)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over every client in order: length, then its sorted indices, all as little-endian 64-bit integers."""
        digest = hashlib.sha256()
        for part in self.indices:
            digest.update(np.array([len(part)], dtype="<i8").tobytes())
            digest.update(part.astype("<i8").tobytes())
        return digest.hexdigest()

    def summary(self) -> dict[str, Any]:
        """What a record keeps of a partition, ready for JSON."""
        return {
            "recipe": self.recipe,
            "parameters": dict(self.parameters),
            "fingerprint": self.fingerprint,
            "overlap": self.overlap,
            "sizes": list(self.sizes),
            "entropy_bits": [round(h, 4) for h in self.entropy_bits],
            "class_counts": self.class_counts.tolist(),
            "unassigned": self.unassigned,
        }

    def save(self, path: str | Path) -> None:
        """Write to a `.json` or `.npz` file, with the fingerprint in it."""
        write(Path(path), {**self.summary(), "samples": self.samples}, self.indices)

    @classmethod
    def load(cls, path: str | Path, labels: ArrayLike, classes: int | None = None) -> "Partition":
        """Read what `save` wrote, for the same data set.

        A UserError if the indices do not give the fingerprint, if the data set has another size, or if its labels,
        counted again, give other class counts: a partition of one data set says nothing about another.
        """
        header, indices = read(Path(path))
        label_array = np.asarray(labels)
        largest = max((int(part.max(initial=-1)) for part in indices), default=-1)
        if header.get("samples") != len(label_array) or largest >= len(label_array):
            raise UserError(
                f"partition {str(path)!r} divides {header.get('samples')} samples, up to index {largest}, and this "
                f"data set has {len(label_array)}: give the data set that it was made for"
            )
        partition = cls.of(indices, label_array, header["recipe"], header["parameters"], classes)
        if partition.fingerprint != header.get("fingerprint"):
            raise UserError(
                f"partition {str(path)!r} was altered: its indices do not give its fingerprint, save it anew"
            )
        if _without_empty_end(partition.class_counts.tolist()) != _without_empty_end(header["class_counts"]):
            raise UserError(
                f"partition {str(path)!r} was made for other labels: give the data set that it was made for"
            )
        return partition


def _without_empty_end(class_counts: list[list[int]]) -> list[list[int]]:
    """Class counts up to the last class that anybody holds: the number of classes of the task may be declared later."""
    held = [label for row in class_counts for label, count in enumerate(row) if count]
    return [row[: max(held, default=-1) + 1] for row in class_counts]
