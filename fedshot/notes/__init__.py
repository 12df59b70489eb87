"""The research notes that can be run again by one command each."""

from fedshot.errors import unknown
from fedshot.notes.note import Note, Repeated, Runs, Scale, Seen, Table
from fedshot.notes.svhn_explosion import SVHN_EXPLOSION
from fedshot.notes.why_v10_fails import WHY_V10_FAILS
from fedshot.notes.why_v11_fails import WHY_V11_FAILS

__all__ = ["NOTES", "Note", "Repeated", "Runs", "Scale", "Seen", "Table", "note_of"]

NOTES: dict[str, Note] = {note.name: note for note in (WHY_V10_FAILS, WHY_V11_FAILS, SVHN_EXPLOSION)}


def note_of(name: str) -> Note:
    if name not in NOTES:
        raise unknown("note", name, NOTES)
    return NOTES[name]
