"""What `fedshot reproduce --json` printed, kept in a file: the note's figures beside ours, made into text again.

Tables of λ are read off telemetry, which is not kept; what was printed is.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from fedshot.errors import UserError
from fedshot.notes.note import Habits, Scale, Seen, Table, usual_habits
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
    parts.append(
        "\n".join(f"- {'seen' if s.holds else '**not seen**'}: {s.claim}: {s.measured}" for s in kept.phenomena)
    )
    found = [f"- {label}: {title}" for label, titles in kept.findings.items() for title in titles]
    parts.append("\n".join(["found by the lab itself:\n", *found]) if found else "")
    asked = f" --habits {kept.habits}" if kept.habits not in (None, usual_habits(kept.scale)) else ""
    command = f"fedshot reproduce {kept.note} --scale {kept.scale}{asked}"
    parts.append(f"The note: {kept.setting}. Here: `{command}`.")
    return "\n\n".join(filter(None, parts))


def _sheet(table: Table) -> Sheet:
    return Sheet(table.columns, table.rows, frozenset(), (), ())
