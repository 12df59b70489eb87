"""FAFI's clients; on the server the prototypes count row by row."""

from dataclasses import replace

from fedshot.fusion import dynamic_prototypes as weighted_rows
from fedshot.method import Method
from fedshot.methods.fafi import fafi


def dynamic_prototypes() -> Method:
    """The same clients as fafi; each prototype is a mean weighted by the clients' images of its class and confidence.

    After Pei et al. 2025 and Xu et al. 2023; who never saw a class has no vote for its prototype.
    """
    return replace(fafi(), name="dynamic_prototypes", fusion=weighted_rows())
