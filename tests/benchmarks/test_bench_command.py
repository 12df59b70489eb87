"""`fedshot bench` as a person meets it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedshot.benchmarks import scaling, suite
from fedshot.benchmarks.ground import Ground
from fedshot.benchmarks.plain import Measured
from fedshot.benchmarks.scaling import Point
from fedshot.cli import main


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Runs the command in an empty folder; the status, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSHOT_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["bench", "--device", "cpu", *arguments])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


@pytest.fixture
def speeds(monkeypatch):
    """Figures in place of measurements: a speed, or an exception to raise, for each case."""
    known = {}

    def measure(case, setting, ground):
        found = known.get(case.row, 100.0)
        if isinstance(found, BaseException):
            raise found
        return Measured(found, 1.0, 10**6)

    monkeypatch.setattr(suite, "measure", measure)
    monkeypatch.setattr(suite, "matrix_rate", lambda device, seconds: 1e9)
    return known


def files():
    return sorted(path for path in Path("runs/bench").glob("*.json"))


def test_a_real_case_from_end_to_end(call):
    status, out, err = call("--quick", "--only", "digits/eager", "--json")
    assert (status, err.count("\n")) == (0, 1)
    assert err.startswith("[1/1] digits/eager … ") and "images/s" in err
    found = json.loads(out)
    (row,) = found["rows"]
    assert row["images_per_second"] > 0 and row["mfu"] > 0 and row["times_published"] is None
    assert json.loads(files()[0].read_text()) == found
    assert json.loads(Path("runs/bench/history.jsonl").read_text()) == found


def test_the_package_is_measured_in_this_process(case):
    """The row of the package itself, without the command around it."""
    row = suite.row_of(replace(case, row="workers-1", loop="fedshot"), Ground(torch.device("cpu"), 0.01))
    assert row.error is None and row.images_per_second > 0 and row.startup_seconds >= 0


def test_a_table_and_what_became_slower(call, speeds):
    speeds.update({"published": 10.0, "eager": 50.0})
    assert call("--quick", "--only", "published", "--only", "eager")[0] == 0
    speeds["eager"] = 30.0
    status, out, _ = call("--quick", "--only", "published", "--only", "eager", "--out", "mine.json")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["case", "digits/published", "digits/eager"]
    assert "slower: digits/eager: 30 images/s, 40 % slower than 50" in out
    assert "slower: digits/published" not in out
    assert ("noisy" in out or "busy" in out) and out.rstrip().endswith("mine.json")
    assert json.loads(Path("mine.json").read_text())["rows"][1]["times_published"] == 3.0
    assert len(files()) == 1 and len(Path("runs/bench/history.jsonl").read_text().splitlines()) == 2


def test_a_case_without_memory_does_not_stop_the_others(call, speeds):
    speeds["published"] = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate …")
    speeds["eager"] = RuntimeError("first line\nsecond line")
    status, out, err = call("--quick", "--json")
    assert status == 0
    rows = {row["name"].partition("/")[2]: row for row in json.loads(out)["rows"]}
    assert rows["published"]["error"] == "out of memory" and rows["published"]["images_per_second"] is None
    assert rows["eager"]["error"] == "RuntimeError: first line"
    assert rows["workers-1"]["images_per_second"] == 100.0
    assert "digits/published … out of memory" in err


def test_an_interrupted_bench_keeps_its_rows(call, speeds):
    speeds["eager"] = KeyboardInterrupt()
    status, out, err = call("--quick")
    assert status == 130
    assert "digits/published" in out and "digits/eager" not in out
    assert "interrupted; the rows that are done are kept" in err
    assert len(json.loads(files()[0].read_text())["rows"]) == 1
    assert len(Path("runs/bench/history.jsonl").read_text().splitlines()) == 1


def test_an_interrupt_before_the_first_row_leaves_nothing(call, speeds):
    speeds["published"] = KeyboardInterrupt()
    status, out, _ = call("--quick")
    assert (status, out) == (130, "")
    assert not Path("runs").exists()


def test_scaling(call, monkeypatch):
    monkeypatch.setattr(scaling, "scaling_points", lambda on_gpu, quick: [Point(2, 20), Point(2, 40), Point(4, 40)])
    monkeypatch.setattr(scaling, "expected_speed", lambda setting, ground: 20.0)
    status, out, err = call("--quick", "--scaling")
    assert status == 0 and err.count("s / 10⁶ views") == 3
    (file,) = files()
    rows = json.loads(file.read_text())["scaling"]
    assert [(row["clients"], row["images"], row["epochs"]) for row in rows] == [(2, 20, 2), (2, 40, 2), (4, 40, 2)]
    assert all(row["seconds_per_million_views"] > 0 and row["error"] is None for row in rows)
    assert all(0 < row["training_memory_bytes"] <= row["whole_memory_bytes"] for row in rows)
    assert file.with_suffix(".svg").exists() and file.with_suffix(".png").exists() and ".svg" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "digts"], "unknown case 'digts': did you mean 'digits'?"),
        (["--scaling", "--only", "digits"], "leave one of the two out"),
    ],
)
def test_mistakes(call, arguments, said):
    status, out, err = call(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err and not Path("runs").exists()


def test_help_teaches_with_examples(call):
    out = call("--help")[1]
    assert "Examples" in out and out.count("fedshot bench ") >= 3 and "history.jsonl" in out
