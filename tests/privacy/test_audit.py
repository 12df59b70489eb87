"""The membership audit: what it says of scores that are known, and of uploads that leak for sure or not at all."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedshot.data.dataset import Labelled
from fedshot.errors import UserError
from fedshot.experiment import run
from fedshot.local.work import upload_of
from fedshot.method import Client
from fedshot.prepare import prepare
from fedshot.privacy.attacks import ATTACKS, Evidence, Seen, likelihood, loss_threshold, near_class_mean
from fedshot.privacy.audit import advantage, auc, audit, by_chance, look, tpr_at
from fedshot.setting import Setting
from fedshot.spec import Spec, make_spec
from fedshot.store import RunFolder

Quick = Callable[..., Spec]


@pytest.fixture(scope="module")
def held_out(quick: Quick, finished: Callable) -> Any:
    return finished(quick("fafi", validation=0.3))


# the figures


def naive_advantage(inside: list[float], outside: list[float]) -> float:
    thresholds = [*inside, *outside, min([*inside, *outside]) - 1]
    return max(np.mean([x > t for x in inside]) - np.mean([x > t for x in outside]) for t in thresholds)


@pytest.mark.parametrize("seed", range(5))
def test_figures_equal_a_naive_count(seed: int) -> None:
    draw = np.random.default_rng(seed)
    inside, outside = draw.integers(0, 9, 23) + 1.0, draw.integers(0, 9, 11) + 0.0
    found = advantage("loss", "weights", torch.tensor(inside), torch.tensor(outside))
    assert found.advantage == pytest.approx(naive_advantage(list(inside), list(outside)))
    pairs = [(x > y) + (x == y) / 2 for x in inside for y in outside]
    assert found.auc == pytest.approx(np.mean(pairs))
    assert found.low <= found.advantage <= found.high
    assert (found.members, found.others) == (23, 11)


def test_scores_that_know_everything_and_nothing() -> None:
    sure = advantage("loss", "weights", torch.ones(50), torch.zeros(40))
    assert (sure.advantage, sure.auc, sure.tpr_at_low_fpr, sure.high) == (1, 1, 1, 1)
    assert sure.significant and 0.7 < sure.low < 1
    same = advantage("loss", "weights", torch.zeros(50), torch.zeros(40))
    assert (same.advantage, same.auc, same.tpr_at_low_fpr) == (0, 0.5, 0)
    assert not same.significant


def test_chance_exceeds_its_level_in_five_of_a_hundred_cases() -> None:
    draws = torch.Generator().manual_seed(1)
    level, beyond = by_chance(80, 60), 0
    for _ in range(400):
        inside, outside = (np.sort(torch.rand(n, generator=draws).numpy()) for n in (80, 60))
        thresholds = np.concatenate([inside, outside])
        gap = np.searchsorted(outside, thresholds) / 60 - np.searchsorted(inside, thresholds) / 80
        beyond += gap.max() > level
    assert 0.01 <= beyond / 400 <= 0.08


@pytest.mark.parametrize(("shift", "truth"), [(0.2, 0.0797), (1.0, 0.3829), (2.0, 0.6827)])
def test_the_interval_holds_the_truth_as_often_as_it_says(shift: float, truth: float) -> None:
    """Members are normal around the shift, others around 0: the largest gap is 2Φ(shift/2) - 1."""
    draws, held = torch.Generator().manual_seed(2), 0
    for _ in range(200):
        inside = torch.randn(150, generator=draws) + shift
        found = advantage("loss", "weights", inside, torch.randn(100, generator=draws))
        held += found.low <= truth <= found.high
    assert held / 200 >= 0.95


def test_tpr_at_a_low_rate_lets_no_other_through_when_they_are_few() -> None:
    assert tpr_at(np.array([1.0, 2, 3, 4]), np.array([0.0, 2.5]), rate=0.01) == 0.5
    others = np.sort(np.arange(200.0))
    assert tpr_at(np.array([197.5, 198.5, 300.0]), others, rate=0.01) == pytest.approx(1.0)  # two others are above 197
    assert auc(np.array([0.0]), np.array([0.0])) == 0.5


# the attacks


def seen(logits: list[list[float]], labels: list[int], features: list[list[float]] | None = None) -> Seen:
    count = len(labels)
    feature = torch.tensor(features) if features else torch.zeros(count, 2)
    return Seen(torch.zeros(count, 1, 8, 8, dtype=torch.uint8), torch.tensor(labels), feature, torch.tensor(logits))


def test_a_surer_answer_has_a_higher_score() -> None:
    asked = seen([[0.0, 0.0], [5.0, 0.0], [30.0, 0.0], [60.0, 0.0]], [0, 0, 0, 0])
    reference = seen([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 2.0]], [0, 0, 1, 1])
    for attack in (loss_threshold, likelihood):
        scores = attack(asked, Evidence({}, reference))
        assert (scores.diff() > 0).all(), attack  # no probability is rounded to 1


def test_likelihood_compares_with_the_images_own_class() -> None:
    """Class 1 is easy for everybody: an equal confidence says less there."""
    reference = seen([[1.0, 0.0], [1.4, 0.0], [0.0, 5.0], [0.0, 5.4]], [0, 0, 1, 1])
    scores = likelihood(seen([[5.0, 0.0], [0.0, 5.0]], [0, 1]), Evidence({}, reference))
    assert scores[0] > 5 > abs(float(scores[1]))


def test_a_class_without_comparison_is_compared_with_all() -> None:
    reference = seen([[1.0, 0.0], [2.0, 0.0]], [0, 0])
    assert likelihood(seen([[0.0, 9.0]], [1]), Evidence({}, reference)).isfinite().all()


def test_the_mean_of_one_image_gives_it_away() -> None:
    sections = {"class_means": {"means": torch.tensor([[3.0, 4.0], [0.0, 0.0]])}}
    asked = seen([[0.0, 0.0]] * 2, [0, 0], [[3.0, 4.0], [3.0, 5.0]])
    assert near_class_mean(asked, Evidence(sections, asked)).tolist() == [0.0, -1.0]


# runs


def test_every_attack_that_the_upload_allows_is_made(held_out: Any) -> None:
    found = audit(prepare(held_out.record.spec), held_out.folder)
    assert [each.client for each in found] == [0, 1, 2, None]
    for each, (members, others) in zip(found, ((28, 12), (23, 10), (12, 5), (63, 27)), strict=True):
        assert [attack.attack for attack in each.attacks] == list(ATTACKS)
        assert {(attack.members, attack.others) for attack in each.attacks} == {(members, others)}
        assert each.bound is None
    assert audit(prepare(held_out.record.spec), held_out.folder) == found


def test_an_untrained_model_tells_nothing(held_out: Any, tmp_path: Path) -> None:
    shutil.copytree(held_out.folder.path, tmp_path / "run")
    folder, setting = RunFolder(tmp_path / "run"), prepare(held_out.record.spec)
    for number in range(3):
        client = setting.client(number)
        assert isinstance(client, Client)
        folder.write_upload(upload_of(setting, client, setting.initial_model, ("weights",)))
    together = audit(setting, folder)[-1]
    assert [attack.attack for attack in together.attacks] == ["loss", "likelihood"]
    assert not any(attack.significant for attack in together.attacks)


def test_a_model_that_learned_its_images_by_heart_is_caught(held_out: Any, tmp_path: Path) -> None:
    """A head that knows the training images, and answers the held-out ones wrongly: the audit must see all of it."""
    setting = prepare(held_out.record.spec)
    client = setting.client(0)
    assert isinstance(client, Client) and client.validation is not None
    inside, outside = (look(setting.initial_model, part, setting.task) for part in (client.train, client.validation))
    truth = torch.nn.functional.one_hot(inside.labels, 10).float()
    by_heart = replace(inside, logits=9 * truth)
    wrong = replace(outside, logits=-9 * torch.nn.functional.one_hot(outside.labels, 10).float())
    reference = look(setting.initial_model, setting.data.test, setting.task)
    for name in ("loss", "likelihood"):
        attack = ATTACKS[name][1]
        scores = [attack(part, Evidence({}, reference)) for part in (by_heart, wrong)]
        assert advantage(name, "weights", *scores).advantage == 1.0


def test_without_held_out_images_there_is_no_audit(quick: Quick, finished: Callable) -> None:
    done = finished(quick("fafi"))
    with pytest.raises(UserError, match=r"run with --validation 0\.2"):
        audit(prepare(done.record.spec), done.folder)


def test_a_site_without_test_images_audits_what_it_can(held_out: Any) -> None:
    """A client of a federation has no test images: the attack that compares with them is left out."""
    setting = prepare(held_out.record.spec)
    nobody = Labelled(setting.data.test.images[:0], setting.data.test.labels[:0])
    alone: Setting = replace(setting, data=replace(setting.data, test=nobody))
    (found,) = audit(alone, held_out.folder, [1])
    assert [attack.attack for attack in found.attacks] == [name for name in ATTACKS if name != "likelihood"]


def test_of_a_private_run_the_bound_is_told(quick: Quick, tmp_path: Path) -> None:
    pytest.importorskip("opacus")
    spec = quick(
        "fedavg",
        norm="group",
        dp_noise=4.0,
        counts="withheld",
        fusion="logits",
        validation=0.3,
        epochs=1,
        evaluate_at=(),
    )
    record = run(spec, tmp_path / "run")
    found = audit(prepare(record.spec), RunFolder(tmp_path / "run"))
    for each in found[:-1]:
        assert each.bound is not None and 0 < each.bound < 1
        assert [attack.section for attack in each.attacks] == ["weights", "weights"]
    assert found[-1].bound is None


# the command


def test_the_command_prints_a_table_or_json(
    held_out: Any, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    from fedshot.cli import main

    monkeypatch.setenv("COLUMNS", "140")

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(["audit", str(held_out.folder.path), "--device", "cpu", *words])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    status, out, _ = call()
    assert status == 0 and "likelihood" in out and "1 % FPR" in out and "interval of the advantage" in out
    status, out, _ = call("--json", "--client", "2")
    (only,) = json.loads(out)
    assert only["client"] == 2 and only["attacks"][0]["attack"] == "loss"
    status, _, err = call("--client", "9")
    assert status == 2 and "there is no client 9: the clients are 0 to 2" in err


def test_a_folder_that_is_no_run_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fedshot.cli import main

    with pytest.raises(SystemExit) as end:
        main(["audit", str(tmp_path)])
    assert end.value.code == 2 and "is not the folder of a run" in capsys.readouterr().err


def test_clients_too_small_to_hold_back_are_left_out(divided: Callable[..., str], tmp_path: Path) -> None:
    spec = make_spec(
        method="fafi",
        clients=2,
        partition_file=divided((20, (0, 1)), (2, (2,))),
        validation=0.2,
        epochs=1,
        batch_size=8,
    )
    record = run(spec, tmp_path / "run")
    assert [each.client for each in audit(prepare(record.spec), RunFolder(tmp_path / "run"))] == [0]
