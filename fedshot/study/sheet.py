"""Results as people and programs read them: a table in the terminal, Markdown, LaTeX, CSV, JSON."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Group

_LATEX = str.maketrans({c: f"\\{c}" for c in "_%&#$"} | {"±": r"$\pm$", "–": "--", "†": r"$\dagger$", "×": r"$\times$"})


@dataclass(frozen=True)
class Sheet:
    """Text in columns. `data` are the same figures as plain values, for programs."""

    header: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]
    bold: frozenset[tuple[int, int]]  # row and column of the best
    notes: tuple[str, ...]
    data: tuple[dict[str, Any], ...]


def as_table(sheet: Sheet, width: int = 80) -> "Group":
    """For a terminal of that many columns: it breaks no word as long as there is room, and then the longest first."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    short = [_heading(name) for name in sheet.header]
    headings = [head if short.count(head) == 1 else name for name, head in zip(sheet.header, short, strict=True)]
    texts = list(zip(headings, *sheet.body, strict=True))
    words = [max(len(word) for text in column for word in text.split() or [""]) for column in texts]
    lines = [max(len(line) for text in column for line in text.split("\n")) for column in texts]
    for heading, wide in zip(headings, fitted(words, lines, width - 2 * len(texts)), strict=True):
        table.add_column(heading, overflow="fold", width=wide)
    for number, line in enumerate(sheet.body):
        table.add_row(*(Text(t, "bold" if (number, place) in sheet.bold else "") for place, t in enumerate(line)))
    return Group(table, *(Text(note, "dim") for note in sheet.notes))


def fitted(words: Sequence[int], lines: Sequence[int], room: int) -> list[int]:
    """Widths of columns that have room together: whole words first, then whole lines, the shortest first; rest for one.

    Args:
        words: the longest word of each column.
        lines: the longest line of each.

    >>> fitted([8, 20, 4], [8, 30, 9], 50), fitted([8, 20, 4], [8, 30, 9], 40), fitted([8, 20, 4], [8, 30, 9], 22)
    ([8, 30, 9], [8, 23, 9], [8, 10, 4])
    """
    most = next((n for n in range(max(words, default=0), 0, -1) if sum(min(w, n) for w in words) <= room), 1)
    found = [min(word, most) for word in words]
    for place in sorted(range(len(lines)), key=lambda place: lines[place]):
        if lines[place] - found[place] <= room - sum(found):
            found[place] = max(found[place], lines[place])
    if folded := [place for place, line in enumerate(lines) if found[place] < line]:
        longest = max(folded, key=lambda place: lines[place])
        found[longest] += max(0, room - sum(found))
    return found


def _heading(name: str) -> str:
    """A column's name on several short lines.

    >>> _heading("final.worst_class_accuracy %")
    'worst\\nclass\\naccuracy %'
    """
    group, dot, rest = name.partition(".")
    if dot and group in ("final", "cost", "clients", "partition"):
        return rest.replace("_", "\n")
    return name.replace(", ", ",\n")


def as_markdown(sheet: Sheet) -> str:
    """A table and its notes."""
    lines = [f"| {' | '.join(sheet.header)} |", f"|{'---|' * len(sheet.header)}"]
    for number, line in enumerate(sheet.body):
        shown = [f"**{t}**" if (number, place) in sheet.bold else t for place, t in enumerate(line)]
        lines.append(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in shown)} |")
    return "\n".join([*lines, *(f"\n{note}" for note in sheet.notes)])


def as_latex(sheet: Sheet) -> str:
    """A tabular of booktabs; the notes are comments above it."""

    def escaped(text: str) -> str:
        return text.replace("\\", r"\textbackslash{}").translate(_LATEX)

    lines = [f"% {note}" for note in sheet.notes]
    lines += [rf"\begin{{tabular}}{{{'l' * len(sheet.header)}}}", r"\toprule"]
    lines += [" & ".join(map(escaped, sheet.header)) + r" \\", r"\midrule"]
    for number, line in enumerate(sheet.body):
        shown = [
            rf"\textbf{{{escaped(text)}}}" if (number, place) in sheet.bold else escaped(text)
            for place, text in enumerate(line)
        ]
        lines.append(" & ".join(shown) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def as_csv(sheet: Sheet) -> str:
    """The figures in full, one line each."""
    names = list(dict.fromkeys(name for row in sheet.data for name in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sheet.data)
    return buffer.getvalue().removesuffix("\n")


def as_json(sheet: Sheet) -> str:
    """The figures in full."""
    return json.dumps(sheet.data, indent=1)


TEXTS: dict[str, Callable[[Sheet], str]] = {
    "csv": as_csv,
    "latex": as_latex,
    "markdown": as_markdown,
    "json": as_json,
}
