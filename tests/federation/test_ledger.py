"""The ledger: every event is one line, none is lost on a full disk, and the lines add up to a row for each client."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedshot.federation.ledger import Ledger, Standing, read_ledger, standings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run" / "ledger.jsonl"


def test_lines_add_up_to_a_row_for_each_client(file: Path) -> None:
    ledger = Ledger(file)
    ledger.note("begin", detail={"clients": 2})
    ledger.note("online", 0)
    ledger.note("asked", 0)
    ledger.note("lost", 0, {"reason": "its node went"})
    ledger.note("asked", 0, {"again": "it failed"})
    ledger.note("busy", 0, {"epoch": 3})
    ledger.note("asked", 0, {"again": "it was busy"})
    training = standings(file, 3)[0]
    assert (training.state, training.epoch, training.asked, training.retries) == ("training", 3, 3, 1)
    ledger.note("delivered", 0, {"samples": 40, "bytes": 1000, "seconds": 2.5})
    ledger.note("duplicate", 0)
    ledger.note("refused", 0, {"reason": "it has sent another upload before"})
    ledger.note("gone", 0)
    ledger.note("missing", 1, {"reason": "was not online"})
    first, second, third = standings(file, 3)
    assert (first.state, first.samples, first.bytes, first.seconds) == ("delivered", 40, 1000, 2.5)
    assert (first.refusals, first.duplicates, first.online, first.reason) == (1, 1, False, None)
    assert (second.state, second.reason) == ("missing", "was not online")
    assert third == Standing(client=2) and third.state == "not asked"


def test_one_that_was_missing_and_came_late(file: Path) -> None:
    ledger = Ledger(file)
    ledger.note("missing", 0, {"reason": "was not online"})
    ledger.note("late", 0, {"samples": 3, "bytes": 10, "seconds": 1.0})
    (row,) = standings(file, 1)
    assert (row.state, row.late, row.reason) == ("delivered", True, None)


def test_no_ledger_and_a_torn_line(file: Path) -> None:
    assert list(read_ledger(file)) == []
    Ledger(file).note("asked", 0)
    with file.open("ab") as opened:
        opened.write(b'{"client": 0, "ev')
    assert [entry["event"] for entry in read_ledger(file)] == ["asked"]
    Ledger(file).note("delivered", 0)  # the next server's first line
    assert [entry["event"] for entry in read_ledger(file)] == ["asked", "delivered"]


def test_a_full_disk_loses_no_line(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    ledger, fsync = Ledger(file), os.fsync
    ledger.note("begin")

    def moods() -> Iterator[bool]:
        yield from (False, False, True)

    mood = moods()

    def full(descriptor: int) -> None:
        if not next(mood):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    ledger.note("asked", 0)
    ledger.note("disk full", 0, {"reason": "No space left on device"})
    assert [entry["event"] for entry in read_ledger(file)] == ["begin"]
    assert "client 0: disk full: the ledger cannot be written: No space left" in capsys.readouterr().err
    ledger.note("asked", 0)
    assert [json.loads(line)["event"] for line in file.read_text().splitlines()] == [
        "begin",
        "asked",
        "disk full",
        "asked",
    ]
