"""A record as one flat row of plain values."""

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedshot.changed import contents, variant
from fedshot.study.grid import OPTION, SETTINGS

if TYPE_CHECKING:
    from fedshot.record import Record

Row = dict[str, Any]
HELD_OUT = "held_out."
_HELD_OUT_FIGURES = ("accuracy", "balanced_accuracy", "nll", "images")  # None in records that have none
READ_BY_SOME = ("alpha", "classes_per_client")  # settings that not every recipe reads
_NOT_FLAT = ("per_class_accuracy", "confusion")  # of `final`: lists are in the record


def row_of(record: "Record", place: Path) -> Row:
    """A record as one flat row."""
    spec, clients = record.spec, record.clients
    alone = [client.accuracy_alone for client in clients if client.accuracy_alone is not None]
    sent = [client.upload_bytes for client in clients if client.skipped is None]
    return {
        "run": str(place),
        "variant": variant(spec.method, spec.options),
        "method": spec.method,
        **{name: getattr(spec, name) for name in SETTINGS},
        **_division(record),
        "content": ", ".join(f"{name}={sha256}" for name, sha256 in contents(spec).items()) or None,
        "seed": spec.seed,
        **{f"{OPTION}{name}": value for name, value in spec.options.items()},
        **{f"final.{name}": value for name, value in record.final.model_dump().items() if name not in _NOT_FLAT},
        **{f"{HELD_OUT}{name}": getattr(record.held_out, name, None) for name in _HELD_OUT_FIGURES},
        **{f"cost.{name}": value for name, value in record.cost.model_dump().items()},
        "clients.skipped": sum(client.skipped is not None for client in clients),
        "clients.smallest": min(client.samples for client in clients),
        "clients.largest": max(client.samples for client in clients),
        "clients.accuracy_alone": fmean(alone) if alone else None,
        "clients.best_alone": max(alone, default=None),
        "clients.upload_bytes": fmean(sent) if sent else 0.0,
        "partition.overlap": record.partition.get("overlap"),
        "partition.fingerprint": record.partition.get("fingerprint"),
        "device": record.device,
        "result_sha256": record.result_sha256,
    }


def _division(record: "Record") -> Row:
    """How the data were divided in truth: a file has its own recipe, and not every recipe reads every parameter."""
    told, read = record.partition, record.partition.get("parameters") or {}
    return {
        "recipe": told.get("recipe") or record.spec.recipe,
        **{name: read.get(name) for name in READ_BY_SOME},
    }
