"""The public feature bank: made once, sent with the job, fixed; its stages; what it is without strength."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

from fedshot.errors import UserError
from fedshot.experiment import Execution, run
from fedshot.methods.bank import Stages
from fedshot.prepare import prepare
from fedshot.spec import Spec

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]
BANKS = ("public_bank", "public_bank_sound", "two_stage_bank", "two_stage_bank_sound")


@pytest.mark.parametrize("name", BANKS)
def test_the_bank_is_sent_once_and_its_bytes_are_counted(name: str, quick: Quick, finished: FinishedRun) -> None:
    found = finished(quick(name))
    sent = load(found.folder.job.read_bytes())
    public = prepare(quick(name)).task.public
    assert public is not None
    assert sent["bank"].shape == (len(public.data), 512) and sent["bank_labels"].shape == (len(public.data),)
    torch.testing.assert_close(sent["bank"].norm(dim=1), torch.ones(len(public.data)))
    assert sorted(sent["bank_labels"].tolist()) == sorted(public.data.labels.tolist())
    assert found.record.cost.job_bytes == found.folder.job.stat().st_size > 4 * 512 * len(public.data)
    assert found.record.final.phases == 1 and found.record.cost.announced_bytes == 0


def test_a_teacher_knows_its_images(quick: Quick, finished: FinishedRun) -> None:
    sent = load(finished(quick("public_bank")).folder.job.read_bytes())
    bank, labels = sent["bank"], sent["bank_labels"]
    nearest = (bank @ bank.T).fill_diagonal_(-1).argmax(1)
    assert (labels[nearest] == labels).float().mean() > 0.9


@pytest.mark.parametrize("name", BANKS)
def test_without_strength_and_stages_it_is_fafi(name: str, quick: Quick, finished: FinishedRun) -> None:
    neutral = {"strength": 0.0, **({"first": 0} if "stage" in name else {})}
    assert finished(quick(name, neutral)).uploads == finished(quick("fafi", public="0.1")).uploads


def test_without_a_first_stage_two_stages_are_one(quick: Quick, finished: FinishedRun) -> None:
    assert finished(quick("two_stage_bank", {"first": 0})).uploads == finished(quick("public_bank")).uploads


def test_workers_and_resumed_runs_read_the_same_bank(quick: Quick, finished: FinishedRun, tmp_path: Path) -> None:
    spec = quick("two_stage_bank_sound")
    before = finished(spec)
    record = run(spec, tmp_path / "run", Execution(workers=2))
    assert record.result_sha256 == before.record.result_sha256
    for file in ("record.json", "clients/1/client.json"):
        (tmp_path / "run" / file).unlink()
    made = (tmp_path / "run" / "job.safetensors").stat().st_mtime_ns
    again = run(spec, tmp_path / "run", Execution(resume=True))
    assert again.result_sha256 == record.result_sha256
    assert (tmp_path / "run" / "job.safetensors").stat().st_mtime_ns == made  # no second teacher


def test_the_stage_of_every_epoch_is_in_the_telemetry(quick: Quick, finished: FinishedRun) -> None:
    rows = finished(quick("two_stage_bank", {"round": 2}, epochs=4)).rows(0)
    assert [row["stage_one"] for row in rows] == [1, 0, 1, 0]
    assert [row["loss_classification"] > 0 for row in rows] == [False, True, False, True]
    assert all(row["loss_contrast"] > 0 for row in rows)
    once = finished(quick("two_stage_bank_sound", {"first": 1}, epochs=4)).rows(0)
    assert [row["stage_one"] for row in once] == [1, 0, 0, 0]


def test_nothing_but_the_contrast_is_learned_in_the_first_stage(quick: Quick, finished: FinishedRun) -> None:
    spec = quick("two_stage_bank")
    start = prepare(spec).initial_model.state_dict()["head.prototypes"].norm(dim=1).mean()
    first, second = finished(spec).rows(0)
    assert first["prototype_norm"] == float(start) != second["prototype_norm"]
    assert first["loss_classification"] == 0 and first["grad_norm"] > 0


def test_the_last_epoch_has_the_full_loss_and_a_round_too(quick: Quick, finished: FinishedRun) -> None:
    rows = finished(quick("two_stage_bank_sound", epochs=2)).rows(0)
    assert [row["stage_one"] for row in rows] == [1, 0]
    with pytest.raises(UserError, match=r"stages.first=5 leaves no epoch of a round of 5"):
        run(quick("two_stage_bank", {"first": 5}))


def test_a_teacher_that_diverges_is_told_and_so_are_its_seconds(quick: Quick, finished: FinishedRun) -> None:
    assert finished(quick("public_bank")).record.cost.job_seconds > 0 == finished(quick("fafi")).record.cost.job_seconds
    with pytest.raises(UserError, match=r"the teacher's training diverged.*lower teacher.rate from 1e\+30"):
        run(quick("public_bank", {"teacher.rate": 1e30, "passes": 2}))


@pytest.mark.parametrize("epochs", [7, 50, 300, 1000])
def test_the_stage_is_that_of_the_epoch_at_every_step(epochs: int) -> None:
    stages, steps = Stages(first=1, round=5), 37
    for step in [*range(3 * steps), *range((epochs - 2) * steps, epochs * steps)]:
        progress = torch.zeros(()).copy_(torch.tensor(float(step), dtype=torch.float64) / (epochs * steps))
        epoch = step // steps
        assert int(stages.alone(progress, epochs)) == (epoch % 5 == 0 and epoch < epochs - 1)


def test_same_class_entries_make_another_run(quick: Quick, finished: FinishedRun) -> None:
    kinds = [finished(quick("public_bank", {"same_class": kind})).uploads[0] for kind in ("repel", "ignore", "attract")]
    assert len(set(kinds)) == 3


@pytest.mark.parametrize("name", BANKS)
def test_a_bank_larger_than_the_public_images_stops_before_training(name: str, quick: Quick, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a bank of 5000 .* there are 144.*size=144"):
        run(quick(name, {"size": 5000}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_attraction_needs_the_labels_of_the_task(quick: Quick, pictures: Callable[[int, str], str]) -> None:
    public = pictures(8, "L")
    with pytest.raises(UserError, match=r"same_class=attract needs .* same_class=ignore"):
        run(quick("public_bank_sound", public=public))
    assert 0 <= run(quick("public_bank_sound", {"same_class": "ignore"}, public=public)).final.accuracy <= 1
