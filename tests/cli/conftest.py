"""The command line as a person meets it: through `fedshot.cli.main`, and as the installed program."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedshot.cli import main

PROGRAM = Path(sys.executable).with_name("fedshot")


@dataclass(frozen=True)
class Answer:
    """What a command printed, and how it ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be JSON alone."""
        return json.loads(self.out)


Call = Callable[..., Answer]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command in this process, in an empty folder, without any data set but the embedded one."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.delenv("FEDSHOT_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Answer(int(end.value.code or 0), printed.out, printed.err)

    return run


@pytest.fixture(scope="session")
def program() -> Callable[..., Answer]:
    """Runs the installed program in a process of its own."""

    def run(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> Answer:
        around = {**os.environ, **(env or {})}
        ended = subprocess.run([PROGRAM, *arguments], cwd=cwd, env=around, capture_output=True, text=True, timeout=120)
        return Answer(ended.returncode, ended.stdout, ended.stderr)

    return run


@pytest.fixture
def small(three_clients: str) -> list[str]:
    """Options of a run that takes a second."""
    return ["--partition-file", three_clients, "-k", "3", "-e", "1", "-b", "16", "-w", "1", "--device", "cpu"]


VARIANT = '''"""FAFI with its cross-entropy made heavier."""

from dataclasses import replace

from fedshot.local.objective import Objective, Term
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CLASSIFICATION, FAFI_TERMS


def heavier(strength: float = 1.0) -> Method:
    """FAFI + strength times its cross-entropy once more."""
    more = Term("more", lambda step: strength * CLASSIFICATION.value(step))

    def objective(client: Client) -> Objective:
        return Objective(base=(*FAFI_TERMS, more))

    return replace(fafi(), name="heavier", objective=objective)
'''


@pytest.fixture
def variant(tmp_path: Path) -> Path:
    """A method of one's own, in a file."""
    file = tmp_path / "heavier.py"
    file.write_text(VARIANT)
    return file
