"""`fedshot results` on the runs of a comparison and of a study."""

import csv
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def folder(call: Callable, quick: Callable, finished: Callable) -> str:
    """Two methods over two seeds, and one run that was never finished."""
    for method, options in (("fafi", {}), ("etf", {"weight": 0.5})):
        for seed in (1, 2):
            run = finished(quick(method, options, seed=seed, epochs=1))
            shutil.copytree(run.folder.path, f"runs/c/{method}/seed-{seed}")
    unfinished = Path("runs/c/fafi/seed-9")
    unfinished.mkdir()
    (unfinished / "spec.json").write_bytes(Path("runs/c/fafi/seed-1/spec.json").read_bytes())
    return "runs"


def test_runs_are_queried_and_written_in_every_format(call: Callable, folder: str) -> None:
    shown = call("results", folder)
    assert shown.status == 0 and shown.err == "fedshot: left out: runs/c/fafi/seed-9: the run is not finished\n"
    assert "etf:weight=0.5" in shown.out and " accuracy % " in shown.out and "965 kB" in shown.out
    rows = call("results", folder, "--format", "json").json
    assert len(rows) == 4 and {row["seed"] for row in rows} == {1, 2}
    table = list(csv.DictReader(io.StringIO(call("results", folder, "--format", "csv").out)))
    assert [row["run"] for row in table] == [row["run"] for row in rows]
    chosen = call("results", folder, "--where", "method=V7,seed>1", "--columns", "variant,seed,accuracy", "-f", "csv")
    assert chosen.out.splitlines()[0] == "variant,seed,final.accuracy" and len(chosen.out.splitlines()) == 2
    down = call("results", folder, "--sort", "-seed", "--columns", "seed", "-f", "csv").out.split()
    assert down == ["seed", "2", "2", "1", "1"]


def test_settings_that_others_decide_are_told_below_the_table(call: Callable, folder: str, finished, quick) -> None:
    other = finished(quick("fafi", seed=1, epochs=2, lr=0.1))
    shutil.copytree(other.folder.path, "runs/other")
    shown = call("results", folder)
    assert "epochs also sets apart: evaluate_at, lr (--columns shows them)" in " ".join(shown.out.split())
    assert shown.out.split().count("epochs") == 2  # the column and the note


def test_settings_that_few_runs_change_share_a_column(call: Callable, folder: str, finished, quick) -> None:
    for name, changes in {"one": {"clip": 2.0}, "two": {"draws": "batch"}}.items():
        shutil.copytree(
            finished(quick("fafi", seed=3, epochs=1, evaluate_at=(), **changes)).folder.path, f"runs/{name}"
        )
    shown = call("results", folder, "-f", "markdown").out.splitlines()
    assert shown[0].startswith("| variant | settings | seed |")
    assert [line.split(" | ")[1] for line in shown if " | 3 | " in line] == ["draws=batch", "clip=2"]
    assert {line.split(" | ")[1] for line in shown if " | 1 | " in line} == {"–"}


def test_cells_over_seeds(call: Callable, folder: str) -> None:
    cells = call("results", folder, "--pivot", "rows=variant,columns=epochs,value=accuracy", "-f", "json").json
    assert [(cell["variant"], cell["epochs"], cell["n"]) for cell in cells] == [
        ("etf:weight=0.5", 1, 2),
        ("fafi", 1, 2),
    ]
    markdown = call("results", folder, "--pivot", "rows=variant", "--format", "markdown").out
    assert markdown.startswith("| variant | final.accuracy |\n|---|---|\n| etf:weight=0.5 | ")
    assert markdown.count("(2 seeds)") == 2
    latex = call("results", folder, "--pivot", "rows=variant+seed", "--format", "latex").out
    assert r"\begin{tabular}{lll}" in latex and "(1 seed)" in latex and r"\bottomrule" in latex


def test_differences_to_one_method(call: Callable, folder: str) -> None:
    rows = call("results", folder, "--against", "fafi", "-f", "json").json
    assert [(row["variant"], row["reference"], row["n"]) for row in rows] == [("etf:weight=0.5", "fafi", 2)]
    shown = call("results", folder, "--against", "fafi").out
    assert "paired over seeds" in shown and "Holm" not in shown  # of two seeds nothing can be tested


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--where", "alhpa=1"], "did you mean 'alpha'"),
        (["--where", "seed=5"], "no run here satisfies seed=5: seed is 1 or 2"),
        (["--where", "accuracy=90"], ", a share of 1"),
        (["--where", "method!=fafi,variant=etf:weight=0.6"], "did you mean 'etf:weight=0.5'?"),
        (["--pivot", "row=method"], "write rows=NAME+NAME,columns=NAME,value=NAME"),
        (["--pivot", "rows=method", "--ranks"], "choose one of"),
        (["--figure", "x.svg"], "--figure does nothing without --ranks"),
        (["--ranks"], "ranks need at least 2 methods"),
        (["--columns", "acuracy"], "did you mean 'final.accuracy'"),
        (["--against", "fafy"], "did you mean 'fafi'"),
    ],
)
def test_mistakes_are_told(call: Callable, folder: str, options: list[str], said: str) -> None:
    answer = call("results", folder, *options)
    assert (answer.status, answer.out) == (2, "") and said in answer.err.splitlines()[-1]


def test_an_empty_folder_is_an_error(call: Callable) -> None:
    Path("empty").mkdir()
    answer = call("results", "empty")
    assert answer.status == 2 and "there is no finished run in empty" in answer.err
