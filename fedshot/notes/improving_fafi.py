"""Improving FAFI: the planned mechanisms, each against FAFI on the same clients."""

from collections.abc import Mapping
from typing import Any

from fedshot.methods import parse_reference
from fedshot.notes.note import Note, Repeated, Runs, Scale, Seen, Table
from fedshot.record import Record, bytes_per_client
from fedshot.spec import Spec, make_spec
from fedshot.study.recipes import PLANNED

TOLD: Mapping[str, str] = {  # all that the note says about results
    "memory_bank": "does harm",
    "public_bank": "may suffer",
}
SETTINGS: Mapping[Scale, dict[str, Any]] = {
    "tiny": {"data": "digits:images=300", "clients": 3, "alpha": 0.3, "epochs": 4, "batch_size": 16},
    "small": {"data": "cifar10:images=5000", "clients": 5, "alpha": 0.05, "epochs": 15, "encoder": "cnn"},
    "full": {"data": "cifar10", "clients": 5, "alpha": 0.05, "epochs": 50, "encoder": "resnet18"},
}


def runs(scale: Scale) -> dict[str, Spec]:
    shared = {"public": "0.1", "validation": 0.1, "seed": 1, **SETTINGS[scale]}
    asked = {label: parse_reference(label) for label in ("fafi", *PLANNED)}
    return {label: make_spec(method=name, options=options, **shared) for label, (name, options) in asked.items()}


def tables(found: Runs) -> list[Table]:
    rows = []
    base = found["fafi"].record
    for label, run in found.items():
        record = run.record
        gap = record.final.accuracy - base.final.accuracy
        rows.append(
            (
                label,
                TOLD.get(label, "–"),
                f"{record.final.accuracy:.1%}",
                "–" if run.record is base else f"{gap:+.1%}",
                f"{record.final.personalised_accuracy:.1%}",
                f"{record.cost.client_seconds - base.cost.client_seconds:+.1f}",
                f"{(_bytes(record) - _bytes(base)) / 1000:+,.1f}",
                str(record.final.phases),
            )
        )
    columns = ("mechanism", "note", "accuracy", "to fafi", "personal", "client s", "client kB", "phases")
    return [Table("every planned mechanism, one seed; `fedshot study notes-plan` has three", columns, tuple(rows))]


def phenomena(found: Runs) -> list[Seen]:
    last = {label: run.record.final.accuracy for label, run in found.items()}
    share = _false_negatives(found["memory_bank"])
    harm = last["memory_bank"] - last["fafi"]
    ahead = [label for label in found if last[label] > last["fafi"]]
    second = [label for label, run in found.items() if run.record.final.phases > 1]
    return [
        Seen("the memory bank does harm", f"{harm:+.1%} against fafi, one seed", harm < 0),
        Seen(
            "its negatives are false ones: a client fills the queue with its own classes",
            f"{share:.0%} of the features in it are of an anchor's own class, at the end",
            share > 0.1,
        ),
        Seen(
            "nothing needs a second exchange but the announced split",
            f"two phases: {', '.join(second) or 'none'}",
            second == ["split_announced"],
        ),
        Seen("a planned mechanism improves FAFI", f"{', '.join(ahead) or 'none'}, one seed", bool(ahead)),
    ]


def _false_negatives(run: Repeated) -> float:
    """The share of an anchor's own class among the entries that are features, not the random vectors of the start."""
    row = run.longest[-1]
    samples = next(c.samples for c in run.record.clients if c.id == row["client"])
    size = run.record.spec.options["size"]
    pushed = samples * (row["epoch"] - 0.5)  # as the mean over the steps of the last epoch
    return row["own_class_share"] * size / min(size, pushed)


def _bytes(record: Record) -> float:
    cost = record.cost
    return bytes_per_client(cost.upload_bytes, cost.announced_bytes, cost.job_bytes, record.spec.clients)


IMPROVING_FAFI = Note(
    "improving-fafi",
    "Improving FAFI: what was planned",
    "no figures, but that the memory bank did harm",
    runs,
    tables,
    phenomena,
)
