"""`fedshot report`: one page of everything below a folder."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedshot.record import result_digest


@pytest.fixture
def runs(call: Callable, small: list[str], tmp_path: Path) -> Path:
    """Two methods over two seeds, as `fedshot compare` leaves them: one run, and three that were edited."""
    root = tmp_path / "runs"
    assert call("run", "fafi", *small, "--out", root / "fafi" / "seed-1").status == 0
    content = json.loads((root / "fafi" / "seed-1" / "record.json").read_bytes())
    for method, accuracy in (("fafi", 0.5), ("etf", 0.6)):
        for seed in (1, 2):
            content["spec"] |= {"method": method, "seed": seed}
            content["final"]["accuracy"] = accuracy
            content["partition"]["parameters"]["alpha"] = 0.05
            folder = root / method / f"seed-{seed}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "record.json").write_text(json.dumps(content | {"result_sha256": result_digest(content)}))
    return root


def test_a_folder_becomes_a_page_and_figures(call: Callable, runs: Path) -> None:
    answer = call("report", runs, "--figures", "paper", "--format", "svg")
    assert (answer.status, answer.err) == (0, "")
    assert answer.out == f"report: {runs / 'report.html'}\nfigures: 2 files in paper\n"
    assert "etf, 60.0 ± 0.0 (2 seeds)" in (runs / "report.html").read_text()
    assert {file.suffix for file in Path("paper").iterdir()} == {".svg"}


def test_single_runs_and_a_baseline_can_be_given(call: Callable, runs: Path) -> None:
    given = [runs / "fafi" / "seed-1", runs / "etf" / "seed-1"]
    assert call("report", *given, "--baseline", "fafi", "-o", "two.html").status == 0
    text = Path("two.html").read_text()
    assert "Against fafi, in points: +10.0 (1 seed)." in text


def test_bad_input_is_named_and_the_rest_reported(call: Callable, runs: Path, tmp_path: Path) -> None:
    (runs / "fafi" / "seed-2" / "record.json").write_text("{")
    (runs / "etf" / "seed-1" / "telemetry.jsonl").write_text("?")
    (tmp_path / "empty").mkdir()
    answer = call("report", runs, tmp_path / "empty", "-o", "report.html")
    assert answer.status == 0
    told = answer.err.splitlines()
    assert len(told) == 3 and all(line.startswith("left out: ") for line in told)
    text = Path("report.html").read_text()
    assert text.count("<li>Left out: ") == 3
    assert "2 methods on digits" in text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "no finished run in"),
        (("gone",), "gone does not exist"),
        (("--figures", "paper", "--format", "gif"), "unknown format 'gif'"),
        (("--format", "svg"), "it does nothing without --figures DIR"),
    ],
)
def test_mistakes_are_one_sentence(call: Callable, tmp_path: Path, more: Sequence[str], said: str) -> None:
    (tmp_path / "empty").mkdir()
    answer = call("report", tmp_path / "empty", *more)
    assert answer.status == 2
    assert said in answer.err.splitlines()[-1]
    assert not list(tmp_path.rglob("*.html"))


def test_records_are_kept_and_read_again(call: Callable, runs: Path, tmp_path: Path) -> None:
    """A file of records stands for the folders that they came from; tables go to standard output alone."""
    answer = call("report", runs, "--records", "kept.jsonl")
    assert (answer.status, answer.out) == (0, "records: 4 new, 0 replaced, 0 as before in kept.jsonl\n")
    assert not list(tmp_path.rglob("*.html")), "a page was not asked for"
    again = call(
        "report", "kept.jsonl", "--baseline", "fafi", "--markdown", "--records", "kept.jsonl", "-o", "page.html"
    )
    assert again.err == "records: 0 new, 0 replaced, 4 as before in kept.jsonl\nreport: page.html\n"
    assert again.out == call("report", runs, "--baseline", "fafi", "--markdown").out
    assert "| etf | 60.0 ± 0.0 (2 seeds) | +10.0 [+10.0, +10.0] (2 seeds) |" in again.out
    assert "2 methods on digits" in Path("page.html").read_text()
    one = call("report", "kept.jsonl", "--where", "method=etf,seed=2", "--markdown")
    assert "| etf | 60.0 (1 seed) |" in one.out and "fafi" not in one.out


def test_tables_of_several_tasks_begin_with_one_across_them(
    call: Callable, runs: Path, rewrite_record: Callable
) -> None:
    def less_skewed(content: dict[str, Any]) -> None:
        content["spec"] |= {"seed": 1, "alpha": 0.5}
        content["partition"]["parameters"]["alpha"] = 0.5

    for file in runs.glob("*/seed-2/record.json"):
        rewrite_record(file, less_skewed)
    out = call("report", runs, "--markdown").out
    assert out.startswith("| variant | alpha 0.05 | alpha 0.5 |")
    assert out.count("\n## digits · ") == 2
    assert "\nProtocol: digits · " in out


def test_the_standing_of_a_method_is_printed_and_drawn(call: Callable, runs: Path) -> None:
    answer = call("report", runs, "--standing", "etf", "--markdown", "--figures", "paper", "--format", "svg")
    assert answer.status == 0
    assert "etf is ahead of the best rival in 1 of 1 cells by the mean, and in 2 of 2 seeds" in answer.out
    assert answer.err == "figures: 3 files in paper\n", "two of any report, and the picture"
    assert "best rival" in Path("paper/standing.svg").read_text()
    assert not (runs / "report.html").exists()
    table = call("report", runs, "--standing", "etf")
    assert "fafi by" in table.out and not (runs / "report.html").exists()
    assert "unknown method among these runs 'aurora'" in call("report", runs, "--standing", "aurora").err
