"""Fills the measured figures into the documentation, from the records in results/ alone.

    python docs/publish.py

results/tables.yaml lists the tables. Each stands between <!-- results:NAME --> and <!-- /results:NAME --> of its page,
the number of a method between <!-- number:METHOD --> and <!-- /number --> of the page of that method.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from fedshot.errors import UserError
from fedshot.methods import METHODS
from fedshot.report.across import across, against
from fedshot.report.comparison import Runs, comparison
from fedshot.report.comparison_table import as_markdown
from fedshot.report.gather import Gathered, gather
from fedshot.report.leaderboard import leaderboard
from fedshot.report.note import note_in_markdown, read_note, side_by_side
from fedshot.report.standing import standings
from fedshot.report.standing_picture import standing_picture
from fedshot.report.standing_sheet import standing_sheet
from fedshot.study import sheet
from fedshot.study.statistics import percent, summarise

ROOT = Path(__file__).parent.parent


class TableEntry(BaseModel):
    """One table of the catalogue; results/tables.yaml explains the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    page: str
    kind: Literal["comparison", "grid", "differences", "standing", "leaderboard", "note", "habits"]
    sources: tuple[str, ...] = Field(alias="from", min_length=1)
    where: str | None = None
    against: str | None = None
    of: str | None = None
    picture: str | None = None


class Catalogue(BaseModel):
    """All tables by the names of their markers, and the comparisons that give the numbers of the methods."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tables: dict[str, TableEntry]
    numbers: tuple[str, ...]


def catalogue(root: Path) -> Catalogue:
    """What is to be shown where."""
    return Catalogue.model_validate(yaml.safe_load((root / "results" / "tables.yaml").read_text(encoding="utf-8")))


def pages(root: Path = ROOT) -> dict[Path, str]:
    """Every page that shows kept records, as its text should be."""
    asked, texts = catalogue(root), dict[Path, str]()

    def text_of(page: Path) -> str:
        return texts.get(page) or page.read_text(encoding="utf-8")

    for name, entry in asked.tables.items():
        page = root / "docs" / entry.page
        texts[page] = between(
            text_of(page), f"results:{name}", f"/results:{name}", KINDS[entry.kind](entry, root / "results")
        )
        if entry.picture:
            cells = standings(gathered(entry, root / "results").records.values(), entry.of or "")
            texts[root / "docs" / entry.picture] = standing_picture(cells, entry.of or "")
    compared = [compared_in(asked.tables[name], root / "results") for name in asked.numbers]
    for method in METHODS:
        page = root / "docs" / "methods" / f"{method}.md"
        texts[page] = between(text_of(page), f"number:{method}", "/number", number(method, compared))
    return texts


def between(text: str, opening: str, closing: str, content: str) -> str:
    """The text with everything between two markers replaced."""
    pattern = re.compile(f"(<!-- {re.escape(opening)} -->)(.*?)(<!-- {re.escape(closing)} -->)", re.DOTALL)
    if not pattern.search(text):
        raise UserError(f"the marker <!-- {opening} --> is missing")
    return pattern.sub(lambda found: f"{found[1]}\n{content.strip()}\n{found[3]}", text, count=1)


def files(entry: TableEntry, folder: Path) -> list[Path]:
    """The files of a table, in the order of the catalogue."""
    found = [file for pattern in entry.sources for file in sorted(folder.glob(pattern))]
    if not found:
        raise UserError(f"{folder} has no file {' or '.join(entry.sources)}")
    return found


def gathered(entry: TableEntry, folder: Path) -> Gathered:
    """The records of a table; what cannot be read stops it."""
    found = gather(files(entry, folder), entry.against, where=[entry.where] if entry.where else [])
    if found.problems or not found.tasks:
        raise UserError("\n".join(found.problems) or f"no record of {', '.join(entry.sources)} has {entry.where}")
    return found


def compared_in(entry: TableEntry, folder: Path) -> Runs:
    """The methods of one task: the one that differences are taken to first, the others in the order of METHODS."""
    task, *others = gathered(entry, folder).tasks
    if others:
        raise UserError(f"{task.name} and {others[0].name} are no comparison: choose with where, or make a grid")
    order = list(METHODS)
    labels = sorted(task.runs, key=lambda label: (label != entry.against, order.index(task.runs[label][0].spec.method)))
    return {label: task.runs[label] for label in labels}


def number(method: str, compared: Sequence[Runs]) -> str:
    """What a method reaches in each comparison that has it, in one line."""
    told = []
    for records in (runs[method] for runs in compared if method in runs):
        spec, reached = records[0].spec, summarise([record.final.accuracy for record in records])
        seeds = f" (mean ± std over {reached.n} seeds)" if reached.n > 1 else ""
        cell = f"{spec.data}, K={spec.clients}, α={spec.alpha}, {spec.epochs} epochs"
        told.append(f"{percent(reached)} % on {cell}{seeds}")
    if not told:
        raise UserError(f"no record of {method} is kept: add one to results/")
    return "; ".join(told)


KINDS: Mapping[str, Callable[[TableEntry, Path], str]] = {
    "comparison": lambda entry, folder: as_markdown(comparison(compared_in(entry, folder))),
    "grid": lambda entry, folder: sheet.as_markdown(across(gathered(entry, folder).records)),
    "differences": lambda entry, folder: sheet.as_markdown(
        against(gathered(entry, folder).records, entry.against or "")
    ),
    "standing": lambda entry, folder: sheet.as_markdown(
        standing_sheet(standings(gathered(entry, folder).records.values(), entry.of or ""), entry.of or "")
    ),
    "leaderboard": lambda entry, folder: leaderboard(gathered(entry, folder).records.values()),
    "note": lambda entry, folder: "\n\n".join(note_in_markdown(read_note(file)) for file in files(entry, folder)),
    "habits": lambda entry, folder: side_by_side([read_note(file) for file in files(entry, folder)]),
}


def main() -> None:
    """Writes the pages that change, and names them."""
    for page, text in pages().items():
        if not page.exists() or text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
