"""A variant at its neutral value is its parent, bit for bit; and what must not matter does not, bit for bit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedshot.engines.job import Job, Watch
from fedshot.experiment import Execution, run, run_all
from fedshot.local.work import train_client
from fedshot.prepare import prepare
from fedshot.spec import Spec
from fedshot.store import RunFolder
from fedshot.upload import parse

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]

ALIGNED = (
    "random_anchors",
    "annealed_anchors",
    "etf",
    "sliding_anchors",
    "etf_entropy",
    "etf_uncertainty",
    "etf_annealed_uncertainty",
    "etf_decoupled",
    "etf_regularised",
    "aurora",
)


def same(one: Any, other: Any) -> bool:
    return one.uploads == other.uploads and one.record.curve == other.record.curve


@pytest.mark.parametrize("name", ALIGNED)
def test_alignment_of_weight_0_is_fafi(name: str, quick: Quick, finished: FinishedRun) -> None:
    variant, parent = finished(quick(name, {"alignment.weight": 0})), finished(quick("fafi"))
    assert [point.epoch for point in parent.record.curve] == [1, 2]
    assert same(variant, parent)


REDUCTIONS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "etf without weight": ("etf", {"weight": 0}, "fafi", {}),
    "sliding anchors without weight": ("sliding_anchors", {"weight": 0}, "fafi", {}),
    "etf to random anchors": ("etf", {"anchors": "random"}, "annealed_anchors", {}),
    "annealed anchors held constant": ("annealed_anchors", {"anneal": "constant", "weight": 1}, "random_anchors", {}),
    "entropy weights of one value": ("etf_entropy", {"minimum": 5, "maximum": 5}, "etf", {}),
    "no penalty": ("etf_regularised", {"gamma": 0}, "etf_decoupled", {}),
    "a hinge of no strength": ("aurora", {"hinge.gamma": 0}, "aurora", {"hinge.cap": 1e9}),
    "a hinge that is never reached": ("aurora", {}, "aurora", {"hinge.cap": 1e9}),
    "sigmas that do not learn": (
        "etf_decoupled",
        {"sigma.learning_rate": 0, "minimum": 5, "maximum": 5},
        "etf",
        {"anneal": "constant"},
    ),
    "an ungated contrast": ("gated_supcon", {"scale": 1, "power": 0}, "raw_supcon", {}),
    "no pull to the sphere": ("reference_alignment", {"weight": 0}, "fafi", {}),
    "no pull to a gaussian": ("reference_alignment", {"weight": 0, "reference": "gaussian"}, "fafi", {}),
    "a memory of nothing": ("memory_bank", {"size": 0}, "fafi", {}),
    "a sound memory of nothing": ("memory_bank_sound", {"size": 0, "same_class": "attract"}, "fafi", {}),
    "negatives as hard as they are": ("hard_negatives", {"beta": 0, "synthetic": 0}, "fafi", {}),
    "nothing balanced": ("balanced_contrast", {"contrast": "plain", "sampling": "shuffled", "tau": 0}, "fafi", {}),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_variant_at_its_neutral_value_is_its_parent(name: str, quick: Quick, finished: FinishedRun) -> None:
    variant, options, parent, parent_options = REDUCTIONS[name]
    assert same(finished(quick(variant, options)), finished(quick(parent, parent_options)))


def test_reductions_compare_runs_that_can_differ(quick: Quick, finished: FinishedRun) -> None:
    families = ("fafi", "random_anchors", "annealed_anchors", "etf", "sliding_anchors", "etf_decoupled", "aurora")
    runs = [finished(quick(name)) for name in families]
    assert len({tuple(found.uploads) for found in runs}) == len(families)
    gamma = finished(quick("etf_regularised", {"gamma": 1.0}))
    assert not same(gamma, finished(quick("etf_decoupled")))


def test_a_warmup_as_long_as_the_run_leaves_the_policy_unused(quick: Quick, finished: FinishedRun) -> None:
    idle = finished(quick("align_uniform", {"warmup_epochs": 2}))
    weightless = finished(quick("align_uniform", {"alignment.weight": 0}))
    assert same(idle, weightless)
    assert not same(idle, finished(quick("align_uniform", {"warmup_epochs": 1})))


def test_workers_do_not_matter(quick: Quick, finished: FinishedRun, tmp_path: Path) -> None:
    alone = finished(quick("aurora"))
    epochs: list[tuple[int, int]] = []

    class Counting(Watch):
        def epoch(self, job: Job, epoch: int) -> None:
            epochs.append((job.client, epoch))

    side_by_side = run(quick("aurora"), tmp_path / "run", Execution(workers=2), Counting())
    assert side_by_side.result_sha256 == alone.record.result_sha256
    assert [client.upload_sha256 for client in side_by_side.clients] == alone.uploads
    assert sorted(epochs) == [(client, epoch) for client in range(3) for epoch in (1, 2)]
    assert RunFolder(tmp_path / "run").telemetry.read_bytes() == alone.folder.telemetry.read_bytes()


def test_the_order_of_clients_does_not_matter(quick: Quick, finished: FinishedRun, tmp_path: Path) -> None:
    expected, setting, folder = finished(quick("aurora")), prepare(quick("aurora")), RunFolder(tmp_path)
    for number in (1, 2, 0):
        train_client(setting, number, folder, lambda epoch: None)
        assert folder.upload(number).read_bytes() == expected.folder.upload(number).read_bytes()


def test_runs_at_once_do_not_see_each_other(quick: Quick, finished: FinishedRun, tmp_path: Path) -> None:
    names = ("fafi", "aurora")
    together = run_all([(quick(name), tmp_path / name) for name in names])
    for name, record in zip(names, together, strict=True):
        assert not isinstance(record, Exception)
        assert record.result_sha256 == finished(quick(name)).record.result_sha256


@pytest.mark.parametrize("name", ["fafi", "aurora", "fedavg"])
def test_evaluation_points_do_not_move_the_uploads(name: str, quick: Quick, finished: FinishedRun) -> None:
    watched, unwatched = finished(quick(name)), finished(quick(name, evaluate_at=()))
    assert watched.uploads == unwatched.uploads
    assert watched.record.curve[1:] == unwatched.record.curve
    for client in range(3):
        assert watched.rows(client) == unwatched.rows(client)


def test_a_longer_constant_run_passes_through_the_shorter_one(quick: Quick, finished: FinishedRun) -> None:
    # nothing of FAFI under a constant rate depends on how long the run will be
    long = finished(quick("fafi", epochs=3))
    assert len(long.record.curve) == 3
    assert long.record.curve[:2] == finished(quick("fafi")).record.curve


def test_the_fusion_does_not_move_what_clients_train(quick: Quick, finished: FinishedRun) -> None:
    trained = [
        parse(finished(quick("fafi", fusion=rule)).folder.upload(0).read_bytes()).sha256
        for rule in ("features", "logits", "average")
    ]
    assert len(set(trained)) == 1
