"""Fills the measured numbers into the documentation from the records of a comparison of all methods.

    fedshot compare METHOD… --epochs 30 --seeds 1,2,3 --out runs/results
    fedshot study notes-plan --out runs/notes-plan
    python docs/publish.py runs/results runs/notes-plan

A number stands between the markers <!-- number:NAME --> and <!-- /number -->, the tables between <!-- results:NAME -->
and <!-- /results:NAME -->. The second folder is optional.
"""

import re
import sys
from pathlib import Path

from fedshot.methods import METHODS
from fedshot.record import Record
from fedshot.report import as_markdown, comparison
from fedshot.study.statistics import percent

DOCS = Path(__file__).parent


def read(folder: Path) -> dict[str, list[Record]]:
    """The records of every method, one for each seed, in the order of METHODS."""
    runs = {}
    for name in METHODS:
        files = sorted(folder.glob(f"{name}/seed-*/record.json"))
        if not files:
            raise SystemExit(f"{folder} has no record of {name}: compare all methods first")
        runs[name] = [Record.model_validate_json(file.read_text()) for file in files]
    return runs


def between(text: str, start: str, end: str, content: str) -> str:
    """The text with everything between two markers replaced."""
    pattern = re.compile(f"({re.escape(start)})(.*?)({re.escape(end)})", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"the marker {start} is missing")
    return pattern.sub(lambda found: found[1] + content + found[3], text, count=1)


def put(name: str, text: str) -> None:
    """A table into the page of results."""
    page = DOCS / "results.md"
    markers = f"<!-- results:{name} -->", f"<!-- /results:{name} -->"
    page.write_text(between(page.read_text(), *markers, f"\n{text.strip()}\n"))


def main(folder: Path, plan: Path | None = None) -> None:
    runs = read(folder)
    table = comparison(runs)
    put("digits", as_markdown(table))
    if plan is not None:
        put("notes-plan", (plan / "against-fafi.md").read_text())
    for row in table.rows:
        page = DOCS / "methods" / f"{row.label}.md"
        spec = runs[row.label][0].spec
        number = (
            f"{percent(row.accuracy)} % on {spec.data}, K={spec.clients}, α={spec.alpha}, {spec.epochs} epochs "
            f"(mean ± std over {row.accuracy.n} seeds)"
        )
        page.write_text(between(page.read_text(), f"<!-- number:{row.label} -->", "<!-- /number -->", f"\n{number}\n"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:] or ["runs/results"]))
