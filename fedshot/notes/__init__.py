"""The research notes, and the logs of their last method, that can be run again by one command each."""

from fedshot.errors import unknown
from fedshot.notes.aurora_logs import AURORA_LOGS
from fedshot.notes.improving_fafi import IMPROVING_FAFI
from fedshot.notes.note import Habits, Note, Repeated, Runs, Scale, Seen, Table
from fedshot.notes.public_feature_bank import PUBLIC_FEATURE_BANK
from fedshot.notes.svhn_explosion import SVHN_EXPLOSION
from fedshot.notes.why_v10_fails import WHY_V10_FAILS
from fedshot.notes.why_v11_fails import WHY_V11_FAILS

__all__ = ["NOTES", "Habits", "Note", "Repeated", "Runs", "Scale", "Seen", "Table", "note_of"]

NOTES: dict[str, Note] = {
    note.name: note
    for note in (
        *(PUBLIC_FEATURE_BANK, WHY_V10_FAILS, WHY_V11_FAILS),
        *(SVHN_EXPLOSION, IMPROVING_FAFI, AURORA_LOGS),
    )
}


def note_of(name: str) -> Note:
    if name not in NOTES:
        raise unknown("note", name, NOTES)
    return NOTES[name]
