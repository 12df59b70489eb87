"""Kernels of our own for GPUs (Triton): fewer passes over memory and fewer launches than torch's own take.

Each has a plain twin in the package, which defines what it computes and which every other device runs.
"""

import importlib.util
from functools import lru_cache


@lru_cache(maxsize=1)
def available() -> bool:
    """Whether their compiler is there; it comes with torch for GPUs."""
    return importlib.util.find_spec("triton") is not None
