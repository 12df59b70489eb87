"""The documentation shows the records that are kept, and nothing else."""

import gzip
import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from fedshot.errors import UserError
from fedshot.kept import read_collection
from fedshot.methods import METHODS
from fedshot.notes.note import Table
from fedshot.record import Record
from fedshot.report.note import KeptNote, note_in_markdown, read_note, side_by_side

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
COLLECTIONS = sorted(RESULTS.glob("*.jsonl.gz"))
NOTES = sorted((RESULTS / "notes").glob("*.json"))
LARGEST_FILE, LARGEST_FOLDER = 1_000_000, 6_000_000  # bytes


@pytest.fixture(scope="module")
def publish() -> ModuleType:
    spec = importlib.util.spec_from_file_location("publish", ROOT / "docs" / "publish.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def kept() -> dict[Path, Record]:
    """Every record of every collection; reading refuses a damaged line."""
    return {place: record for file in COLLECTIONS for place, record in read_collection(file).items()}


def test_the_pages_show_what_the_records_say(publish: ModuleType) -> None:
    differing = [str(page.relative_to(ROOT)) for page, text in publish.pages().items() if text != page.read_text()]
    assert differing == [], "run python docs/publish.py"


def test_every_table_of_records_in_the_pages_is_in_the_catalogue(publish: ModuleType) -> None:
    marked = {
        (page.relative_to(ROOT / "docs").as_posix(), name)
        for page in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"<!-- results:(\S+) -->", page.read_text())
    }
    assert marked == {(entry.page, name) for name, entry in publish.catalogue(ROOT).tables.items()}


def test_every_method_has_a_row(kept: dict[Path, Record]) -> None:
    assert [name for name in METHODS if name not in {record.spec.method for record in kept.values()}] == []
    board = (ROOT / "docs" / "leaderboard.md").read_text()
    assert [name for name in METHODS if not re.search(rf"^\| {name} ", board, flags=re.M)] == []


def test_every_line_reads_back_as_the_record_it_was_and_a_run_is_kept_once(kept: dict[Path, Record]) -> None:
    for place, record in kept.items():
        assert Record.model_validate_json(record.model_dump_json()) == record, place
    specs = [record.spec.sha256 for record in kept.values()]
    assert [str(place) for place, spec in zip(kept, specs, strict=True) if specs.count(spec) > 1] == []


def test_kept_files_stay_small() -> None:
    sizes = {file: file.stat().st_size for file in RESULTS.rglob("*") if file.is_file()}
    assert COLLECTIONS and all(sizes[file] <= LARGEST_FILE for file in COLLECTIONS)
    assert sum(sizes.values()) <= LARGEST_FOLDER


def test_the_page_of_results_explains_every_file() -> None:
    text = (RESULTS / "README.md").read_text()
    files = [file.relative_to(RESULTS).as_posix() for file in (*COLLECTIONS, *NOTES)]
    assert [file for file in files if f"`{file}`" not in text] == []


@pytest.mark.parametrize("file", NOTES, ids=lambda file: file.stem)
def test_every_note_is_one_that_was_printed(file: Path) -> None:
    note = read_note(file)
    assert file.stem == note.name
    assert not any(Path(folder).is_absolute() for folder in note.runs.values()), "of one machine"


def test_a_note_says_what_was_not_seen() -> None:
    note = KeptNote.model_validate(
        {
            "note": "why-v10-fails",
            "setting": "as told",
            "scale": "full",
            "tables": [{"title": "lambda", "columns": ["round", "here"], "rows": [["0", "1.5"]]}],
            "phenomena": [{"claim": "it grows", "measured": "×0.9", "holds": False}],
            "findings": {"V10": ["severe: it did not"]},
            "runs": {},
        }
    )
    text = note_in_markdown(note)
    for said in (
        "lambda:\n\n| round | here |",
        "| 0 | 1.5 |",
        "**not seen**: it grows: ×0.9",
        "- V10: severe: it did not",
    ):
        assert said in text


def kept_note(habits: str, reached: str, holds: bool, **changes: object) -> KeptNote:
    return KeptNote.model_validate(
        {
            "note": "why-v10-fails",
            "setting": "as told",
            "scale": "small",
            "habits": habits,
            "tables": [{"title": "accuracy", "columns": ["method", "note", "here"], "rows": [["V7", "58.8", reached]]}],
            "phenomena": [{"claim": "it grows", "measured": f"to {reached}", "holds": holds}],
            "findings": {},
            "runs": {},
            **changes,
        }
    )


def test_habits_of_a_note_stand_side_by_side() -> None:
    text = side_by_side([kept_note("sound", "61.0", True), kept_note("published", "40.0", False)])
    for said in (
        "| method | note | here, sound | here, published |",
        "| V7 | 58.8 | 61.0 | 40.0 |",
        "- it grows: sound seen, to 61.0; published **not seen**, to 40.0",
        "`fedshot reproduce why-v10-fails --scale small`, `fedshot reproduce why-v10-fails --scale small "
        "--habits published`",
    ):
        assert said in text, said
    with pytest.raises(UserError, match="are not one note at one scale"):
        side_by_side([kept_note("sound", "1", True), kept_note("sound", "1", True, scale="tiny")])
    one = kept_note("sound", "1", True)
    for tables, said in (
        ([Table("accuracy", ("a",), ())], "do not have the same rows"),
        ([Table("t", ("a",), ())], "do not have the same tables"),
        ([], "do not have the same tables"),
    ):
        with pytest.raises(UserError, match=said):
            side_by_side([one, kept_note("published", "1", True, tables=tables)])
    with pytest.raises(UserError, match="do not have the same tables and claims"):
        side_by_side([one, kept_note("published", "1", True, phenomena=[])])


def test_a_changed_record_or_page_or_catalogue_is_noticed(publish: ModuleType, tmp_path: Path) -> None:
    """The guard itself, on a copy: a record taken away shows, a figure that was typed is refused."""
    root = tmp_path / "copy"
    shutil.copytree(RESULTS, root / "results")
    shutil.copytree(ROOT / "docs", root / "docs", ignore=shutil.ignore_patterns("*.png"))
    shown = (
        "tables: {digits: {page: results.md, kind: comparison, from: [digits.jsonl], against: fafi}}\nnumbers: [digits]"
    )
    (root / "results" / "tables.yaml").write_text(shown)
    digits = root / "results" / "digits.jsonl"
    digits.write_bytes(gzip.decompress((RESULTS / "digits.jsonl.gz").read_bytes()))
    lines = digits.read_text().splitlines(keepends=True)
    digits.write_text("".join(line for line in lines if '"method":"etf"' not in line or '"seed":3' not in line))
    changed = {page.name for page, text in publish.pages(root).items() if text != page.read_text()}
    assert changed == {"results.md", "etf.md"}
    digits.write_text("".join(lines).replace('"accuracy":0.9', '"accuracy":0.8', 1))
    with pytest.raises(UserError, match="its results do not fit their hash"):
        publish.pages(root)
    digits.write_text("".join(line for line in lines if '"method":"etf"' not in line))
    with pytest.raises(UserError, match="no record of etf is kept"):
        publish.pages(root)
    page = root / "docs" / "results.md"
    page.write_text(page.read_text().replace("<!-- results:digits -->", ""))
    with pytest.raises(UserError, match="results:digits --> is missing"):
        publish.pages(root)
