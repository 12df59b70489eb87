"""Clients with data of their own: there is no recipe and no partition, only what they tell of themselves."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedshot.partition.partition import Partition
from fedshot.partition.pools import Indices

OWN = "own"  # in the place of a recipe


def unknown_to_server(clients: int, labels: Indices, classes: int) -> Partition:
    """What the server knows of such clients before they speak: how many they are.

    Args:
        labels: of the server's own training images, which no client holds.
    """
    return Partition.of([np.empty(0, dtype=np.int64)] * clients, labels, OWN, {"clients": clients}, classes)


def as_if_shared(clients: int, labels: Indices, classes: int) -> Partition:
    """The server's own images in equal parts: to try a method out before clients with data of their own are asked."""
    parts = np.array_split(np.arange(len(labels)), clients)
    return Partition.of(parts, labels, OWN, {"clients": clients}, classes)


def as_told(samples: Sequence[int], counts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """What a record keeps of such clients, from what they told; whether they overlap, nobody knows.

    Args:
        samples: of each client, (K,); 0 for one that told nothing.
        counts: of each class, (K, C); a row of zeros for a client that did not tell them: it is listed as `unknown`.

    >>> told = as_told([3, 2], [[1, 2], [0, 0]])
    >>> told["sizes"], told["unknown"], told["entropy_bits"]
    ([3, 2], [1], [0.9183, 0.0])
    """
    table = np.array(counts, dtype=np.int64)
    counted = Partition((), table, int(sum(samples)), OWN, {"clients": len(samples)})
    told = {"sizes": list(samples), "class_counts": table.tolist()}
    return {
        "recipe": OWN,
        "parameters": dict(counted.parameters),
        "fingerprint": hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest(),  # of these numbers alone
        **told,
        "entropy_bits": [round(bits, 4) for bits in counted.entropy_bits],
        "unknown": [number for number, row in enumerate(table) if not row.any()],
    }
