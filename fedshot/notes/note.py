"""A research note as a value: what it tells, the runs that repeat it, and what must be seen in their telemetry."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fedshot.methods import parse_reference
from fedshot.record import Record
from fedshot.spec import Spec, make_spec
from fedshot.store import RunFolder

Scale = Literal["tiny", "small", "full"]
Habits = Literal["sound", "coupled", "published"]
Rows = Sequence[Mapping[str, Any]]  # telemetry of one client, one row an epoch


@dataclass(frozen=True)
class Repeated:
    """A run of the note, done again here."""

    record: Record
    folder: RunFolder

    @cached_property
    def clients(self) -> dict[int, Rows]:
        """Telemetry of every client that trained, by number."""
        found: dict[int, list[Any]] = {}
        for line in self.folder.telemetry.read_text().splitlines():
            row = json.loads(line)
            found.setdefault(row["client"], []).append(row)
        return dict(found)

    @property
    def longest(self) -> Rows:
        """The telemetry of the client with most samples: the one with most steps."""
        most = max((c for c in self.record.clients if c.skipped is None), key=lambda c: c.samples)
        return self.clients[most.id]


Runs = Mapping[str, Repeated]


@dataclass(frozen=True)
class Table:
    """Rows of text under headings."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Seen:
    """A phenomenon that the note reports, as far as it shows in these runs."""

    claim: str
    measured: str
    holds: bool


@dataclass(frozen=True)
class Note:
    """One note. `sound` gives the specs of a scale by label; `tables` sets the note's figures beside ours."""

    name: str
    title: str
    setting: str  # of the note itself
    sound: Callable[[Scale], dict[str, Spec]]
    tables: Callable[[Runs], list[Table]]
    phenomena: Callable[[Runs], list[Seen]]
    round_epochs: int = 1  # after which the note's code begins its momentum anew
    normalisation: Literal["views", "twice"] = "views"  # as its code has it
    drawn_by_sample: tuple[str, ...] = ()  # beginnings of the labels of runs whose code drew views for each image

    def runs(self, scale: Scale, habits: Habits | None = None) -> dict[str, Spec]:
        """The specs of a scale by label, trained with some habits; with the usual ones of the scale if not given."""
        chosen = habits or usual_habits(scale)
        return {label: self._with(chosen, label, spec) for label, spec in self.sound(scale).items()}

    def _with(self, habits: Habits, label: str, spec: Spec) -> Spec:
        if habits == "sound":
            return spec
        changes: dict[str, Any] = {"clip_scope": "joint"}
        if habits == "published":
            changes["draws"] = "sample" if label.startswith(self.drawn_by_sample) else "batch"
            changes["momentum_epochs"] = self.round_epochs
            # the recipe of digits has no colours to jitter
            changes["normalisation"] = "views" if spec.data.startswith("digits") else self.normalisation
        return make_spec(**{**spec.model_dump(), **changes})


def usual_habits(scale: Scale) -> Habits:
    """How a scale trains if nothing else is said: at full scale gradients are clipped by one norm, as in the notes."""
    return "coupled" if scale == "full" else "sound"


def called(note: str, scale: Scale, habits: Habits) -> str:
    """What a note that was run again is called: by habits only where they are not the usual ones of the scale.

    >>> called("why-v10-fails", "full", "coupled"), called("why-v10-fails", "small", "published")
    ('why-v10-fails-full', 'why-v10-fails-small-published')
    """
    return "-".join([note, scale, *([habits] if habits != usual_habits(scale) else [])])


def specs_at(scale: Scale, full: Mapping[str, Any], methods: Mapping[str, str], small_data: str) -> dict[str, Spec]:
    """The same methods at a scale.

    tiny: two alike clients of 450 digits, 30 epochs. small: a part of the note's data set, the small network, five
    clients, α = 0.05, 30 epochs. full: the note's own setting.
    """
    tiny = {"data": "digits:images=900", "clients": 2, "recipe": "iid", "epochs": 30, "batch_size": 32}
    small = {"data": small_data, "clients": 5, "alpha": 0.05, "epochs": 30, "batch_size": 32, "encoder": "cnn"}
    settings = {"tiny": tiny, "small": small, "full": full}[scale]
    shared: dict[str, Any] = {"evaluate_at": tuple(range(5, settings["epochs"] + 1, 5)), **settings, "seed": 1}
    references = {label: parse_reference(text) for label, text in methods.items()}
    return {label: make_spec(method=name, options=options, **shared) for label, (name, options) in references.items()}


def told_setting(data: str, epochs: int, evaluate_at: Sequence[int]) -> dict[str, Any]:
    """What the notes have in common: five clients, α = 0.05, ResNet-18."""
    return {
        "data": data,
        "clients": 5,
        "alpha": 0.05,
        "epochs": epochs,
        "encoder": "resnet18",
        "evaluate_at": tuple(evaluate_at),
    }


def accuracy_table(told: Mapping[str, str], runs: Runs) -> Table:
    """The note's final accuracies beside ours."""
    rows = tuple((label, told.get(label, "–"), f"{run.record.final.accuracy:.2%}") for label, run in runs.items())
    return Table("accuracy at the end, one seed", ("method", "note", "here"), rows)


def at_same_place(rows: Rows, number: int, of: int) -> Mapping[str, Any]:
    """The row of the epoch that lies as far in this run as round `number` of `of` lay in the note's."""
    return rows[min(len(rows) - 1, round(number / max(1, of - 1) * (len(rows) - 1)))]


def times(value: float) -> str:
    """A factor in words.

    >>> times(0.0312), times(17.36), times(482_429.5)
    ('×0.031', '×17.4', '×482,430')
    """
    return f"×{value:.2g}" if value < 1 else f"×{value:,.1f}" if value < 100 else f"×{value:,.0f}"


def folder_of(out: Path, label: str) -> Path:
    return out / "".join(c if c.isalnum() else "-" for c in label).strip("-").lower()
