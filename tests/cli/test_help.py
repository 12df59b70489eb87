"""Help is there at once, for every command, with examples."""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedshot import __version__

COMMANDS = ["run", "compare", "fuse", "partition", "methods", "datasets", "fusions", "bench", "data"]
COMMANDS += ["study", "results", "explain", "reproduce", "report", "watch"]


def test_help_comes_within_a_second(program: Callable, tmp_path: Path) -> None:
    seconds = []
    for _ in range(5):
        started = of_children()
        answer = program("--help", cwd=tmp_path)
        seconds.append(of_children() - started)
        if seconds[-1] < 1:
            break
    assert answer.status == 0
    assert min(seconds) < 1
    assert all(command in answer.out for command in COMMANDS)
    assert "fedshot compare fedavg fafi etf aurora" in answer.out
    assert answer.err == ""


def of_children() -> float:
    """Seconds of work of all processes that were started and have ended; waiting for a busy machine does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom fedshot.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'scipy', 'matplotlib'} & sys.modules.keys()\nassert not heavy, heavy\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("command", [*COMMANDS, "data list", "data verify", "data download"])
def test_every_command_explains_itself(command: str, call: Callable) -> None:
    answer = call(*command.split(), "--help")
    assert answer.status == 0
    assert f"Usage: fedshot {command}" in answer.out
    assert answer.err == ""


@pytest.mark.parametrize("command", ["run", "compare", "fuse", "partition", "study", "results", "explain", "reproduce"])
def test_the_main_commands_teach_with_examples(command: str, call: Callable) -> None:
    out = call(command, "--help").out
    assert "Examples" in out
    assert out.count(f"fedshot {command} ") >= 2


def test_defaults_are_shown_and_names_keep_their_case(call: Callable) -> None:
    out = " ".join(call("run", "--help").out.replace("│", " ").split())
    assert "(default: digits)" in out and "(default: 0.05)" in out and "folder:PATH" in out and "FILE.py" in out


def test_without_a_command_help_is_shown(call: Callable) -> None:
    answer = call()
    assert (answer.status, answer.err) == (0, "")
    assert "First steps" in answer.out


def test_version(call: Callable) -> None:
    assert call("--version").out.strip() == __version__


def test_the_package_is_a_command_too() -> None:
    asked = [sys.executable, "-m", "fedshot", "run", "--help"]
    ended = subprocess.run(asked, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "Usage: fedshot run" in ended.stdout


def test_shell_completion_is_offered(program: Callable, tmp_path: Path) -> None:
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # the shell is named, whatever started the tests
    shown = program("--show-completion", "bash", cwd=tmp_path, env=named)
    assert shown.status == 0 and "_fedshot_completion" in shown.out
