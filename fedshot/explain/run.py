"""A finished run as the diagnoses read it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedshot.precision import unpack
from fedshot.record import Record

Row = Mapping[str, float | None]


class Division(BaseModel):
    """The partition as a record tells it; what it does not tell is empty."""

    model_config = ConfigDict(frozen=True)

    recipe: str = ""
    overlap: float = 0.0
    sizes: tuple[int, ...] = ()
    class_counts: tuple[tuple[int, ...], ...] = ()  # a row for each client
    unassigned: int = 0
    unknown: tuple[int, ...] = ()  # clients that did not tell what they hold


@dataclass(frozen=True)
class Sent:
    """What a client sent: which sections, how many images of each class, and the small tensors as `section/name`."""

    sections: frozenset[str]
    class_counts: tuple[int, ...]
    tensors: Mapping[str, Tensor]

    def section(self, name: str) -> dict[str, Tensor]:
        """The tensors of a section in float32; of the weights, those of the head."""
        prefix = f"{name}/"
        return unpack({key.removeprefix(prefix): t for key, t in self.tensors.items() if key.startswith(prefix)})


@dataclass(frozen=True)
class Run:
    """Telemetry is by client, in the order of epochs; an upload is opened when it is asked for."""

    path: Path
    record: Record
    rows: Mapping[int, Sequence[Row]]
    upload: Callable[[int], Sent | None]

    @property
    def fused(self) -> list[int]:
        """The clients of which something was fused."""
        return [client.id for client in self.record.clients if client.skipped is None]

    @cached_property
    def division(self) -> Division:
        return Division.model_validate(self.record.partition)

    @property
    def class_counts(self) -> tuple[tuple[int, ...], ...]:
        """Images of each class, a row for each client; empty where the record has none."""
        return self.division.class_counts

    @cached_property
    def tests(self) -> list[int]:
        """Test images of each class."""
        return [sum(row) for row in self.record.final.confusion]

    @cached_property
    def predicted(self) -> list[int]:
        """Answers of the fused model, by class."""
        return [sum(column) for column in zip(*self.record.final.confusion, strict=True)]

    def contradiction(self) -> str | None:
        """What in the record cannot be true of one run; None if nothing is."""
        clients, classes = len(self.record.clients), len(self.tests)
        shares = [client.per_class_alone for client in self.record.clients if client.per_class_alone is not None]
        told = {
            "clients are not numbered from 0": [c.id for c in self.record.clients] != list(range(clients)),
            "class counts are not of these clients": bool(self.class_counts) and len(self.class_counts) != clients,
            "classes differ in number": any(len(row) != classes for row in (*self.class_counts, *shares)),
            "the confusion matrix is not square": any(len(row) != classes for row in self.record.final.confusion),
        }
        return next((complaint for complaint, holds in told.items() if holds), None)


def complete(rows: Sequence[Row], *names: str) -> list[dict[str, float]]:
    """The rows in which all of the named numbers are there and finite, with `epoch` and these alone."""
    wanted = ("epoch", *names)
    found = [{name: float(value) for name in wanted if (value := row.get(name)) is not None} for row in rows]
    return [row for row in found if len(row) == len(wanted) and all(map(math.isfinite, row.values()))]
