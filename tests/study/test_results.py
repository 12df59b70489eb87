"""Runs as rows: loading, conditions, cells, and what is left out with a reason."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from fedshot import __version__
from fedshot.errors import UserError
from fedshot.kept import keep, records_at
from fedshot.study import Results, load_results
from fedshot.study.query import parse_where
from fedshot.study.rows import row_of
from fedshot.study.sheet import as_latex, as_markdown
from fedshot.study.tables import flat_sheet, pivot_sheet


@pytest.fixture
def grid(write_run, tmp_path: Path) -> Path:
    """Two methods, two alphas, three seeds."""
    for seed in (1, 2, 3):
        for alpha in (1.0, 0.1):
            write_run("fafi", 0.5 + 0.1 * alpha + 0.01 * seed, alpha=alpha, seed=seed)
            write_run("etf", 0.6 + 0.01 * seed, alpha=alpha, seed=seed, options={"weight": 0.0})
    return tmp_path / "runs"


def test_a_row_holds_what_was_asked_and_what_came_out(grid: Path) -> None:
    results = load_results(grid)
    assert len(results.rows) == 12 and results.problems == ()
    row = results.rows[0]
    assert (row["variant"], row["method"], row["alpha"], row["seed"]) == ("etf:weight=0", "etf", 0.1, 1)
    record = json.loads((Path(row["run"]) / "record.json").read_text())
    assert row["final.accuracy"] == record["final"]["accuracy"] == pytest.approx(0.61)
    assert row["cost.upload_bytes"] == record["cost"]["upload_bytes"]
    assert row["clients.largest"] == 40 and row["clients.skipped"] == 0
    assert row["option.weight"] == 0.0 and "option.weight" not in results.rows[-1]
    plain = str | int | float | tuple | None
    assert all(isinstance(value, plain) for row in results.rows for value in row.values())


def test_conditions_choose_rows(grid: Path) -> None:
    results = load_results(grid)
    for query, count in {
        "method=fafi": 6,
        "method=V7": 6,
        "method=fafi|etf,alpha<=0.1": 6,
        "alpha=0.1,seed!=1|2": 2,
        "weight=0": 6,
        "option.weight=none": 6,
        "final.accuracy>0.625": 3,
        "accuracy>=0.605, seed>2": 3,
        "final.inductive=true": 12,
        "final.inductive=false": 0,
        "": 12,
    }.items():
        assert len(results.where(query).rows) == count, query
    for query, said in {
        "alhpa=1": "unknown column 'alhpa': did you mean 'alpha'",
        "alpha": "write COLUMN=VALUE",
        "method=faffi": "did you mean 'fafi'",
        "alpha<big": "compare with one number",
        "upload_bytes>1": "ambiguous: write cost.upload_bytes or clients.upload_bytes",
    }.items():
        with pytest.raises(UserError, match=said):
            results.where(query)


def test_rows_are_sorted_as_asked(grid: Path) -> None:
    results = load_results(grid)
    best = results.sort("-final.accuracy").rows[0]
    assert best["final.accuracy"] == max(row["final.accuracy"] for row in results.rows)
    assert [row["variant"] for row in results.sort("variant").rows] == sorted(row["variant"] for row in results.rows)
    assert "option.weight" not in results.sort("option.weight").rows[-1]


def test_cells_are_means_over_seeds(grid: Path) -> None:
    table = load_results(grid).pivot(["variant"], ["alpha"])
    assert table.columns == ((0.1,), (1.0,)) and table.rows == (("etf:weight=0",), ("fafi",))
    cell = table.cells[("fafi",), (1.0,)]
    assert (cell.summary.mean, cell.summary.std, cell.seeds) == (pytest.approx(0.62), pytest.approx(0.01), (1, 2, 3))
    sheet = pivot_sheet(table)
    assert sheet.body[1] == ("fafi", "53.0 ± 1.0", "62.0 ± 1.0")
    assert sheet.bold == {(0, 1)}, "equal means have no best"
    assert "| **62.0 ± 1.0** | 62.0 ± 1.0 |" in as_markdown(sheet)
    assert r"\textbf{62.0 $\pm$ 1.0} & 62.0 $\pm$ 1.0 \\" in as_latex(sheet)


def test_soundness_11_one_seed_is_called_one_seed_in_every_cell(grid: Path) -> None:
    sheet = pivot_sheet(load_results(grid).where("seed=1").pivot(["variant"], ["alpha"]))
    assert all("(1 seed)" in text for line in sheet.body for text in line[1:])
    assert "1 seed" in sheet.notes[0]


def test_a_mean_over_different_settings_is_refused(grid: Path) -> None:
    with pytest.raises(UserError, match=r"differ in alpha \(0.1, 1.0\): add it to rows or columns"):
        load_results(grid).pivot(["variant"])


def test_a_transductive_result_is_marked_and_never_the_best(grid: Path, write_run) -> None:
    for seed in (1, 2, 3):
        write_run("aurora", 0.99, {"inductive": False}, alpha=0.1, seed=seed)
        write_run("ensemble", 0.4, {"phases": 2}, alpha=0.1, seed=seed)
    sheet = pivot_sheet(load_results(grid).where("alpha=0.1").pivot(["variant"]))
    cells = dict(sheet.body)
    assert cells["aurora"] == "99.0 ± 0.0 *" and cells["ensemble"] == "40.0 ± 0.0 †"
    assert [sheet.body[row][0] for row, _ in sheet.bold] == ["etf:weight=0"]
    assert any("transductive" in note for note in sheet.notes)
    runs = flat_sheet(load_results(grid).where("method=aurora"), ["seed", "final.accuracy"])
    assert runs.body[0] == ("1", "99.0 *") and "transductive" in runs.notes[0]


def test_other_seeds_and_other_figures_have_no_best(grid: Path, write_run) -> None:
    write_run("fafi", 0.9, alpha=0.1, seed=4)
    results = load_results(grid).where("alpha=0.1")
    assert results.pivot(["variant"]).best(()) == []
    assert pivot_sheet(results.pivot(["variant"])).body[0][1] == "62.0 ± 1.0 (3 seeds)"
    assert results.where("seed<4").pivot(["variant"], value="cost.client_seconds").best(()) == []


def test_what_cannot_be_read_is_named_and_the_rest_reported(grid: Path, write_run) -> None:
    broken, old, changed, unfinished = (write_run("fafi", 0.1, alpha=alpha, seed=9) for alpha in (2.0, 3.0, 4.0, 5.0))
    (broken / "record.json").write_text('{"spec": ')
    for folder, key, value in ((old, "versions", {"fedshot": "0.0.1"}), (changed, "curve", [])):
        content = json.loads((folder / "record.json").read_text())
        (folder / "record.json").write_text(json.dumps({**content, key: value}))
    (unfinished / "record.json").unlink()
    results = load_results(grid)
    assert len(results.rows) == 12
    assert set(results.problems) == {
        f"{broken}/record.json is damaged or not the record of a run: run it again",
        f"{old}/record.json was made by fedshot 0.0.1, this is {__version__}: run it again",
        f"{changed}/record.json is damaged: its results do not fit their hash, so it was changed",
        f"{unfinished}: the run is not finished",
    }


@pytest.mark.parametrize(
    "further",
    [
        "alpha<=0.1",
        "clients>=10",
        "seed!=2",
        "final.accuracy>=0.5",
        " seed =2",
        "final.fusion=features",
        "accuracy=0.5",
    ],
)
def test_a_condition_after_a_variant_with_options_is_one_of_its_own(further: str) -> None:
    found = parse_where(f"variant=etf:weight=2,anneal=cosine,{further},lr=0.1")
    assert [len(condition.wanted) for condition in found] == [1, 1, 1]
    assert found[0].wanted == ("etf:weight=2,anneal=cosine",)


def test_a_setting_that_a_division_does_not_read_was_not_changed() -> None:
    rows = (
        {"recipe": "iid", "alpha": None},
        {"recipe": "dirichlet", "alpha": 0.05},
        {"recipe": "dirichlet", "alpha": 0.3},
    )
    results = Results(tuple({"method": "fafi", "data": "digits", **row} for row in rows))
    told = [row["settings"] for row in results.together(("recipe", "alpha")).rows]
    assert told == ["recipe=iid", None, "alpha=0.3"]
    assert results.rarely_changed(("recipe", "alpha")) == ("recipe", "alpha")


def test_kept_records_are_read_like_folders(grid: Path, tmp_path: Path) -> None:
    keep(tmp_path / "kept.jsonl", [read() for _, read in records_at(grid)])
    kept, runs = load_results(tmp_path / "kept.jsonl"), load_results(grid)
    assert [{**row, "run": ""} for row in kept.rows] == [{**row, "run": ""} for row in runs.rows]
    assert kept.rows[0]["run"].startswith(f"{tmp_path}/kept.jsonl:")
    (tmp_path / "kept.jsonl").write_text("")
    with pytest.raises(UserError, match=r"no finished run in .*kept\.jsonl: make one"):
        load_results(tmp_path / "kept.jsonl")


def test_a_folder_without_runs_is_an_error(tmp_path: Path, write_run) -> None:
    with pytest.raises(UserError, match="does not exist: give the folder"):
        load_results(tmp_path / "absent")
    with pytest.raises(UserError, match=r"there is no finished run in .*: make one with fedshot run"):
        load_results(tmp_path)
    folder = write_run("fafi", 0.1)
    (folder / "record.json").write_text("")
    with pytest.raises(UserError, match="is damaged"):
        load_results(tmp_path)


def test_the_same_run_in_two_folders_counts_once(grid: Path) -> None:
    copy = grid / "copy"
    copy.mkdir()
    (copy / "record.json").write_bytes(next(grid.glob("*/record.json")).read_bytes())
    assert len(load_results(grid).rows) == 12


def test_two_results_of_one_seed_are_never_averaged(write_run) -> None:
    first = write_run("fafi", 0.5, files={"mine.py": "a"})
    write_run("fafi", 0.6, files={"mine.py": "b"})
    with pytest.raises(UserError, match=r"differ in content \(mine.py=a, mine.py=b\): add it to rows or columns"):
        load_results(first.parent).pivot()
    assert load_results(first.parent).where("content=mine.py=b").pivot().cells
    content = (first / "record.json").read_text()
    write_run("fafi", 0.7, files={"mine.py": "a"})  # as another device might have it
    copy = first.parent / "copy"
    copy.mkdir()
    (copy / "record.json").write_text(content)
    assert any("with another result" in problem for problem in load_results(first.parent).problems)


def test_pandas_is_asked_only_when_needed(grid: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = load_results(grid)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="to_pandas needs pandas"):
        results.to_pandas()
    fake = ModuleType("pandas")
    fake.DataFrame = lambda rows, columns: (len(rows), columns)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", fake)
    assert results.to_pandas() == (12, list(results.columns))


def test_a_row_tells_how_the_data_were_divided_in_truth(finished: Callable, quick: Callable) -> None:
    from_file = finished(quick("fafi"))
    row = row_of(from_file.record, from_file.folder.path)
    assert from_file.record.spec.recipe == "dirichlet" and from_file.record.spec.partition_file
    assert (row["recipe"], row["alpha"]) == (from_file.record.partition["recipe"], None)
