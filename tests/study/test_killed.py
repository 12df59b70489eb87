"""A study that is killed again and again ends as one that was left alone."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedshot.engines.job import Watch
from fedshot.experiment import Execution
from fedshot.record import read_record
from fedshot.study.plan import make_plan
from fedshot.study.recipe import read_recipe
from fedshot.study.runner import run_plan

STUDY = """
methods: [fafi, "etf:weight=0.5"]
data: digits:images=60
alpha: 5.0
clients: 2
batch_size: 16
epochs: 2
fusion: [features, moments]
evaluate_at: [1]
seeds: [1, 2, 3]
"""
# imports once, then is forked for each command: what is killed is a process of its own with all its workers
NURSERY = """
import os, sys
import torch._dynamo
import fedshot.study.runner, fedshot.study.live, fedshot.study.estimate
from fedshot.cli import main
for line in sys.stdin:
    if (child := os.fork()) == 0:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        main(line.split())
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
KILLS = 10


@pytest.fixture
def nursery() -> Iterator[subprocess.Popen]:
    """Takes commands of `fedshot` on its input; tells for each its process, and then its exit status."""
    process = subprocess.Popen(
        [sys.executable, "-c", NURSERY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    yield process
    process.stdin.close()
    process.stdout.close()
    process.wait(timeout=30)


def files_in(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.*"))


def is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_study_killed_ten_times_ends_with_the_same_records(nursery: subprocess.Popen, tmp_path: Path) -> None:
    file, out = tmp_path / "twelve.yaml", tmp_path / "killed"
    file.write_text(STUDY)
    plan = make_plan(read_recipe(str(file)).cells, tmp_path / "whole", None)
    whole = run_plan(plan, Execution(), Watch(), lambda *_: None)
    assert len(whole) == 12
    chance, statuses, groups = random.Random(7), [], []

    def begin(workers: int) -> int:
        nursery.stdin.write(f"study {file} --out {out} --device cpu --workers {workers} --json\n")
        nursery.stdin.flush()
        groups.append(int(nursery.stdout.readline()))
        return groups[-1]

    for number in range(KILLS):
        # processes take seconds to start, so only some rounds have them; results do not depend on it
        child, before = begin(workers=1 + number % 2), files_in(out)
        enough, deadline = before + chance.randint(1, 7), time.monotonic() + 20
        while files_in(out) < enough and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.03))
        if number % 3:  # all its processes
            os.killpg(child, signal.SIGKILL)
        else:  # its workers learn of it at the end of their epoch
            os.kill(child, signal.SIGKILL)
        statuses.append(int(nursery.stdout.readline()))
    assert statuses == [-signal.SIGKILL] * KILLS
    done = [read_record(folder / "record.json") for folder in (out / "runs").iterdir()]
    assert sum(record is None for record in done) > 0, "the last kill must have left something to do"
    begin(workers=1)
    assert nursery.stdout.readline() == "0\n"
    for planned, record in zip(plan, whole, strict=True):
        again = read_record(out / "runs" / planned.folder.name / "record.json")
        assert again is not None and again.result_sha256 == record.result_sha256
    assert list(out.rglob(".*.part")) == []
    for _ in range(200):
        if not any(map(is_alive, groups)):
            break
        time.sleep(0.05)
    else:
        raise AssertionError("a worker outlived its study")
