"""Named random streams: every draw of a run comes from a stream spawned by name from the run's seed.

Adding a draw to one stream never moves another, so the order or number of clients trained at once,
an evaluation in between, or a further loss term cannot change a result.
"""

import hashlib

import torch


def stream_seed(seed: int, *name: str | int) -> int:
    """A 63-bit seed for the stream of that name.

    >>> stream_seed(1, "batches", 0) == stream_seed(1, "batches", 0)
    True
    >>> stream_seed(1, "batches", 0) == stream_seed(1, "batches", 1)
    False
    """
    text = "/".join(str(part) for part in (seed, *name))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(seed: int, *name: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator at the start of the stream of that name."""
    return torch.Generator(device=device).manual_seed(stream_seed(seed, *name))
