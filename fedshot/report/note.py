"""What `fedshot reproduce --json` printed, kept in a file: the note's figures beside ours, made into text again.

Tables of λ are read off telemetry, which is not kept; what was printed is.
"""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from fedshot.errors import UserError
from fedshot.notes.note import Habits, Scale, Seen, Table, called, usual_habits
from fedshot.spec import first_problem
from fedshot.study.sheet import Sheet, as_markdown


class KeptNote(BaseModel):
    """A research note, run again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    note: str
    setting: str  # of the note itself
    scale: Scale
    habits: Habits | None = None  # None in files of before there was a choice: the usual ones of the scale
    tables: tuple[Table, ...]
    phenomena: tuple[Seen, ...]
    findings: dict[str, tuple[str, ...]]  # by run
    runs: dict[str, str]  # their folders

    @property
    def trained(self) -> Habits:
        """The habits that its clients trained with."""
        return self.habits or usual_habits(self.scale)

    @property
    def name(self) -> str:
        """What its file is called."""
        return called(self.note, self.scale, self.trained)

    @property
    def command(self) -> str:
        """What was typed."""
        asked = "" if self.trained == usual_habits(self.scale) else f" --habits {self.trained}"
        return f"`fedshot reproduce {self.note} --scale {self.scale}{asked}`"


def read_note(path: Path) -> KeptNote:
    """The note in a file; refuses one that `fedshot reproduce --json` has not printed."""
    try:
        return KeptNote.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise UserError(f"{path} is not what fedshot reproduce --json prints: {first_problem(error)}") from None


def note_in_markdown(kept: KeptNote) -> str:
    """Its tables under their titles, what was seen and what was not, what the lab found by itself, and the setting."""
    parts = [f"{table.title}:\n\n{as_markdown(_sheet(table))}" for table in kept.tables]
    parts.append("\n".join(f"- {_judged(seen)}: {seen.claim}: {seen.measured}" for seen in kept.phenomena))
    found = [f"- {label}: {title}" for label, titles in kept.findings.items() for title in titles]
    parts.append("\n".join(["found by the lab itself:\n", *found]) if found else "")
    parts.append(f"The note: {kept.setting}. Here: {kept.command}.")
    return "\n\n".join(filter(None, parts))


def side_by_side(kept: Sequence[KeptNote]) -> str:
    """One note, trained with several habits: a column that is the same for all stands once, others by their habits."""
    first, *others = kept
    if any((each.note, each.scale) != (first.note, first.scale) for each in others):
        raise UserError(f"{' and '.join(each.name for each in kept)} are not one note at one scale")
    claims = [([table.title for table in each.tables], [seen.claim for seen in each.phenomena]) for each in kept]
    if any(told != claims[0] for told in claims):
        raise UserError(f"{' and '.join(each.name for each in kept)} do not have the same tables and claims")
    labels = [each.trained for each in kept]
    parts = [
        f"{tables[0].title}:\n\n{as_markdown(_sheet(_merged(tables, labels)))}"
        for tables in zip(*(each.tables for each in kept), strict=True)
    ]
    told = []
    for phenomena in zip(*(each.phenomena for each in kept), strict=True):
        here = (f"{label} {_judged(seen)}, {seen.measured}" for label, seen in zip(labels, phenomena, strict=True))
        told.append(f"- {phenomena[0].claim}: {'; '.join(here)}")
    commands = ", ".join(each.command for each in kept)
    return "\n\n".join([*parts, "\n".join(told), f"The note: {first.setting}. Here: {commands}."])


def _merged(tables: Sequence[Table], labels: Sequence[str]) -> Table:
    if len({(table.columns, len(table.rows)) for table in tables}) > 1:
        raise UserError(f"the tables {tables[0].title!r} do not have the same rows")
    columns: list[tuple[str, list[str]]] = []
    for place, name in enumerate(tables[0].columns):
        told = [[row[place] for row in table.rows] for table in tables]
        if all(each == told[0] for each in told):
            columns.append((name, told[0]))
        else:
            columns += [(f"{name}, {label}", each) for label, each in zip(labels, told, strict=True)]
    rows = zip(*(values for _, values in columns), strict=True)
    return Table(tables[0].title, tuple(name for name, _ in columns), tuple(rows))


def _judged(seen: Seen) -> str:
    return "seen" if seen.holds else "**not seen**"


def _sheet(table: Table) -> Sheet:
    return Sheet(table.columns, table.rows, frozenset(), (), ())
