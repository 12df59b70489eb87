"""Everything that the notes planned, side by side in one comparison."""

import json
from collections.abc import Callable
from pathlib import Path

from fedshot.study.recipes import PLANNED


def test_all_planned_mechanisms_are_compared_end_to_end(call: Callable, tmp_path: Path) -> None:
    settings = ("--data", "digits:images=200", "--clients", "2", "--alpha", "0.5", "--epochs", "1", "--seeds", "1")
    shared = ("--public", "0.1", "--validation", "0.1", "--workers", "1", "--out", str(tmp_path / "out"))
    shown = call("compare", "fafi", *PLANNED, *settings, *shared)
    assert shown.status == 0, shown.err
    assert "Personalised accuracy" in shown.out and "2 phases" in shown.out
    records = [json.loads(file.read_text()) for file in sorted((tmp_path / "out").rglob("record.json"))]
    assert len(records) == 1 + len(PLANNED)
    assert len({record["partition"]["fingerprint"] for record in records}) == 1
    assert all(0 <= record["final"]["personalised_accuracy"] <= 1 for record in records)
    phases = {record["spec"]["method"]: record["final"]["phases"] for record in records}
    assert {name for name, number in phases.items() if number == 2} == {"split_announced"}
    sent = {record["spec"]["method"]: record["cost"] for record in records}
    assert sent["split_announced"]["announced_bytes"] == 8 * 2 * 10  # class counts of two clients
    assert {name for name, cost in sent.items() if cost["job_bytes"]} == {
        *("public_bank", "public_bank_sound", "two_stage_bank", "two_stage_bank_sound", "split_announced")
    }
    students = [record["student"] for record in records if record["student"]]
    assert len(students) == 3  # taught on public images, on images from statistics, on noise
    for student in students:
        assert student["accuracy_kept"] == student["accuracy"] / student["teacher_accuracy"]
        assert (student["models"], student["teacher_models"]) == (1, 2)
