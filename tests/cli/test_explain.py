"""`fedshot explain` as a person meets it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedshot.spec import Spec


@pytest.fixture
def folder(finished: Callable[[Spec], Any], quick: Callable[..., Spec]) -> Path:
    """A run whose small clients hardly trained."""
    return finished(quick("fafi")).folder.path


def test_a_run_in_the_terminal(call: Callable, folder: Path) -> None:
    answer = call("explain", folder)
    assert (answer.status, answer.err) == (0, "")
    assert "client_hardly_trained" in answer.out and "equal_terms" in answer.out and "cause" in answer.out


def test_commands_to_try_can_be_copied(call: Callable, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    (run,) = call("explain", folder, "--json").json["runs"]
    commands = [
        remedy[:-1].rpartition("`")[2]
        for finding in run["findings"]
        for remedy in finding["remedies"]
        if remedy.endswith("`")
    ]
    lines = [line.strip() for line in call("explain", folder).out.splitlines()]
    assert len(commands) > 2 and any(len(command) > 50 for command in commands)
    assert all(command in lines for command in commands)


def test_a_run_by_shards_is_told_a_command_that_is_accepted(call: Callable) -> None:
    options = ["--recipe", "shards", "--classes-per-client", "2", "--clients", "2", "-e", "1", "-w", "1"]
    assert call("run", "fafi", *options, "--out", "r").status == 0
    told = [word for word in call("explain", "r").out.splitlines() if "fedshot run" in word and "--recipe" in word]
    assert told and all("--classes-per-client" not in line or "shards" in line for line in told)
    assert any(line.split()[:3] == ["fedshot", "run", "fafi"] and "--classes-per-client" not in line for line in told)


def test_json_alone_and_a_severity(call: Callable, folder: Path) -> None:
    answer = call("explain", folder, "--json", "--severity", "warning")
    assert (answer.status, answer.err) == (0, "")
    (run,) = answer.json["runs"]
    assert run["findings"] and {finding["severity"] for finding in run["findings"]} <= {"severe", "warning"}
    assert answer.json["across"] == [] and answer.json["not_read"] == []


def test_a_page_and_markdown(call: Callable, folder: Path, tmp_path: Path) -> None:
    page, text = tmp_path / "new" / "page.html", tmp_path / "findings.md"
    answer = call("explain", folder, "--html", page, "--markdown", text)
    assert (answer.status, answer.out) == (0, "") and str(page) in answer.err
    assert "client_hardly_trained" in page.read_text() and "### " in text.read_text()


def test_a_folder_without_runs_says_so(call: Callable, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    answer = call("explain", tmp_path / "empty")
    said = " ".join(answer.out.split())  # a long path folds the lines
    assert answer.status == 2 and "no run to explain" in said and "an empty folder" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere is not a folder"),
        ([".", "--severity", "bad"], "'severe', 'warning', 'note'"),
        ([".", "--html", "."], "is a folder: give the name of a file"),
    ],
)
def test_mistakes_are_told_in_one_line(call: Callable, arguments: list[str], said: str) -> None:
    answer = call("explain", *arguments)
    assert answer.status == 2 and said in answer.err and answer.err.count("\n") == 1


def test_help_teaches(call: Callable) -> None:
    out = call("explain", "--help").out
    assert "Examples" in out and out.count("fedshot explain runs/") >= 3 and "RUN|DIR" in out
