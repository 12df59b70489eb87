"""Telemetry: one row an epoch, of numbers that were really used."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedshot.local.anchors import anchors
from fedshot.local.losses import mean_cosine
from fedshot.local.objective import Objective
from fedshot.local.statistics import nearest_mean_agreement
from fedshot.local.telemetry import EpochLog
from fedshot.local.weighting import WeightReport
from fedshot.method import Client
from fedshot.models import Classifier, LinearHead, PrototypeHead, build
from fedshot.prepare import prepare
from fedshot.sections import Evidence, Sizes
from fedshot.spec import Spec
from fedshot.task import Task
from fedshot.upload import parse

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]


def report(value: float) -> WeightReport:
    return WeightReport(*[torch.tensor(value + i) for i in range(7)])


def log_two_steps(model: Classifier, targets: torch.Tensor | None = None) -> dict[str, Any]:
    log = EpochLog(model, Objective(base=(), anchors=targets))
    for base, align, lambda_raw in ((1.0, 0.5, 10.0), (3.0, math.inf, 20.0)):
        terms = {"contrast": torch.tensor(base / 2)}
        norm, factor = torch.tensor(4 * base), torch.tensor(0.25)
        log.add(torch.tensor(base), torch.tensor(align), terms, report(lambda_raw), norm, factor)
    log.close()
    return log.row(log.closed[0].tolist(), client=7, epoch=3, steps=2)


def test_losses_are_means_and_lambdas_are_those_of_the_last_step(task: Task) -> None:
    row = log_two_steps(build(task, PrototypeHead))
    assert (row["client"], row["epoch"]) == (7, 3)
    assert (row["base_loss"], row["loss_contrast"], row["grad_norm"], row["clip_factor"]) == (2.0, 1.0, 8.0, 0.25)
    assert row["lambda_equilibrium"] == 17.0  # the third quantity of a report: the mean of 12 and 22
    assert (row["lambda_raw"], row["lambda_effective"], row["base_scale"]) == (20.0, 21.0, 23.0)
    assert (row["attenuation"], row["sigma_local"], row["sigma_align"]) == (24.0, 25.0, 26.0)


def test_what_is_not_finite_or_does_not_exist_is_none(task: Task) -> None:
    row = log_two_steps(build(task, LinearHead))
    assert row["align_loss"] is row["prototype_norm"] is row["cos_prototype_anchor"] is None


def test_geometry_is_that_of_the_prototypes(task: Task) -> None:
    model, targets = build(task, PrototypeHead), torch.eye(10, 512)
    assert isinstance(model.head, PrototypeHead)
    with torch.no_grad():
        model.head.prototypes.copy_(3 * targets)
    row = log_two_steps(model, targets)
    assert row["prototype_norm"] == pytest.approx(3.0) and row["cos_prototype_anchor"] == pytest.approx(1.0)


def test_an_epoch_begins_with_nothing(task: Task) -> None:
    model = build(task, LinearHead)
    log, one = EpochLog(model, Objective(base=())), torch.tensor(1.0)
    for base in (1.0, 5.0):
        log.add(torch.tensor(base), one, {}, report(0.0), one, one)
        log.close()
    assert [log.row(log.closed[row].tolist(), 0, row + 1, steps=1)["base_loss"] for row in (0, 1)] == [1.0, 5.0]


def test_an_epoch_that_leaves_a_model_that_is_not_finite_has_no_loss(task: Task) -> None:
    model, one = build(task, LinearHead), torch.tensor(1.0)
    log = EpochLog(model, Objective(base=()))
    log.add(one, one, {}, report(0.0), one, one)
    with torch.no_grad():
        next(model.head.parameters()).fill_(torch.inf)
    log.close()
    row = log.row(log.closed[0].tolist(), 0, 1, steps=1)
    assert row["base_loss"] is None and row["align_loss"] == 1.0


def test_a_run_leaves_one_row_for_each_client_and_epoch(quick: Quick, finished: FinishedRun) -> None:
    run = finished(quick("etf"))
    for client in range(3):
        assert [row["epoch"] for row in run.rows(client)] == [1, 2]


def test_terms_add_up_to_the_losses(quick: Quick, finished: FinishedRun) -> None:
    for row in finished(quick("etf")).rows(0):
        parts = ("classification", "contrast", "prototype_feature", "prototype_prototype")
        assert row["base_loss"] == pytest.approx(sum(row[f"loss_{part}"] for part in parts), rel=1e-5)
        assert row["align_loss"] == row["loss_alignment"] > 0
        # the third term of FAFI is its first
        assert row["loss_prototype_feature"] == pytest.approx(row["loss_classification"], rel=1e-6)


def test_the_logged_lambda_is_that_of_the_last_step_of_the_epoch(quick: Quick, finished: FinishedRun) -> None:
    run = finished(quick("etf"))
    steps = 3  # 40 samples in batches of 16
    for row in run.rows(0):
        progress = (row["epoch"] * steps - 1) / (2 * steps)
        assert row["lambda_raw"] == 5.0
        assert row["lambda_effective"] == pytest.approx(5.0 * (1 - progress), rel=1e-6)
        assert row["attenuation"] == pytest.approx(1 - progress, rel=1e-6)


def test_a_method_without_alignment_has_no_lambda(quick: Quick, finished: FinishedRun) -> None:
    for row in finished(quick("fafi")).rows(0):
        assert row["lambda_raw"] == row["lambda_effective"] == row["align_loss"] == 0.0
        assert row["sigma_local"] is row["sigma_align"] is row["lambda_equilibrium"] is None
        assert row["cos_prototype_anchor"] is None and row["prototype_norm"] > 20


def test_sigmas_and_lambda_belong_together(quick: Quick, finished: FinishedRun) -> None:
    rows = finished(quick("aurora")).rows(0)
    for row in rows:
        assert row["lambda_raw"] == pytest.approx((row["sigma_local"] / row["sigma_align"]) ** 2, rel=1e-5)
        assert row["lambda_effective"] == row["lambda_raw"]
    assert rows[0]["lambda_raw"] != rows[1]["lambda_raw"]


def test_the_last_row_describes_the_upload(quick: Quick, finished: FinishedRun) -> None:
    run = finished(quick("etf"))
    upload = parse(run.folder.upload(0).read_bytes())
    prototypes = upload.section("weights")["head.prototypes"]
    row = run.rows(0)[-1]
    assert row["prototype_norm"] == pytest.approx(prototypes.norm(dim=1).mean().item(), rel=1e-6)
    expected = mean_cosine(prototypes, anchors("etf", 10, 512, seed=1)).item()
    assert row["cos_prototype_anchor"] == pytest.approx(expected, abs=1e-6)


def test_the_last_row_tells_how_often_model_and_nearest_class_mean_agree(quick: Quick, finished: FinishedRun) -> None:
    run = finished(quick("fafi"))
    first, last = run.rows(0)
    assert first["nearest_mean_agreement"] is None
    setting = prepare(quick("fafi"))
    client = setting.client(0)
    assert isinstance(client, Client)
    client.model.load_state_dict(parse(run.folder.upload(0).read_bytes()).section("weights"))
    model, labels = client.model.eval(), client.train.labels
    with torch.no_grad():
        features = model.features(client.task.prepare(client.train.images))
        decided = model.head(features).argmax(1)
    means = {int(c): features[labels == c].mean(0) for c in labels.unique()}
    nearest = [min(means, key=lambda c: float((feature - means[c]).norm())) for feature in features]
    agree = sum(int(a) == b for a, b in zip(decided, nearest, strict=True))
    assert last["nearest_mean_agreement"] == agree / len(labels)


def test_the_clip_factor_is_the_limit_over_the_norm(quick: Quick, finished: FinishedRun) -> None:
    for row in finished(quick("fafi", batch_size=64)).rows(0):  # one step an epoch
        assert row["grad_norm"] > 1
        assert row["clip_factor"] == pytest.approx(1 / row["grad_norm"], rel=1e-5)
    for row in finished(quick("fafi", batch_size=64, clip=0.0, lr=0.01)).rows(0):
        assert row["clip_factor"] == 1.0


def test_a_class_that_a_client_does_not_hold_is_nobody_s_nearest(task: Task) -> None:
    features = torch.tensor([[1.0, 0.0], [0.1, 0.0], [0.0, 1.0]])
    labels, logits = torch.tensor([0, 0, 1]), torch.tensor([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0]])
    images, sizes = torch.zeros(3, 1, 8, 8), Sizes(2, 3, (1, 8, 8))
    evidence = Evidence(features, labels, None, sizes, logits, None, None, images, task)
    assert evidence.class_means[2].tolist() == [0.0, 0.0]  # which the second image lies close to
    assert nearest_mean_agreement(evidence) == 3
