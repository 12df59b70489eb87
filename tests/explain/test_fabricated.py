"""Failures that take long to train: telemetry, curves and uploads are fabricated here, and marked as such."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedshot.explain.diagnoses.geometry import geometry
from fedshot.explain.engine import findings_of
from fedshot.explain.run import Run, Sent
from fedshot.record import Point

# fabricated from the research note on SVHN: λ of client 3 and accuracy after these rounds
SVHN = {1: (12.04, 0.259), 10: (65.22, 0.454), 15: (204658.41, 0.495), 16: (482429.48, 0.375), 20: (1516252.51, 0.263)}


def svhn_rows() -> list[dict[str, float | None]]:
    """Fabricated: σ_align carries the growth, L_a falls to nothing, the equilibrium is L_b/(s·L_a)."""
    rows = []
    for epoch, (weight, _) in SVHN.items():
        s, base = (1 + math.cos(math.pi * epoch / 50)) / 2, 8.0
        align = base / (s * weight * 1.2)
        rows.append(
            {
                "client": 3,
                "epoch": epoch,
                "base_loss": base,
                "align_loss": align,
                "lambda_raw": weight,
                "lambda_effective": weight,
                "lambda_equilibrium": 1.2 * weight,
                "attenuation": s,
                "sigma_local": 2.83,
                "sigma_align": 2.83 / math.sqrt(weight),
                "prototype_norm": 22.6 if epoch < 15 else 1.1,
            }
        )
    return rows


@pytest.fixture
def svhn(healthy_run: Run) -> Run:
    """Fabricated telemetry and curve in an otherwise healthy record."""
    curve = tuple(
        Point(epoch=epoch, accuracy=accuracy, balanced_accuracy=accuracy, nll=1.0)
        for epoch, (_, accuracy) in SVHN.items()
    )
    return replace(healthy_run, record=healthy_run.record.model_copy(update={"curve": curve}), rows={3: svhn_rows()})


def test_the_explosion_on_svhn(svhn: Run, find: Callable) -> None:
    finding = find(svhn, "lambda_explosion")
    assert finding.severity == "severe" and finding.clients == (3,)
    assert "12 in epoch 1, 1.52e+06 in epoch 20" in finding.title and "σ_align fell" in finding.title
    assert "wrong term" in finding.cause and "pulled L_a itself down" in finding.cause


def test_prototypes_that_shrink_to_their_anchors(svhn: Run, find: Callable) -> None:
    finding = find(svhn, "prototypes_shrunk")
    assert finding.severity == "severe"
    bound = next(fact.value for fact in finding.facts if fact.name.startswith("highest confidence"))
    best = torch.tensor([1.1] + 9 * [-1.1]).softmax(0).max()  # ten logits within ±1.1
    assert bound == pytest.approx(float(best), rel=1e-5)


def test_a_curve_that_falls_after_its_peak(svhn: Run, find: Callable) -> None:
    finding = find(svhn, "overtraining")
    assert finding.severity == "severe" and finding.epochs == (15, 20)
    assert "49.5% after epoch 15 to 26.3% after epoch 20" in finding.title
    assert "never reported" in finding.title


def test_a_fall_within_the_noise_of_few_test_images_is_none(svhn: Run) -> None:
    curve = tuple(Point(epoch=e, accuracy=a, balanced_accuracy=a, nll=1.0) for e, a in ((1, 0.54), (2, 0.50)))
    run = replace(svhn, record=svhn.record.model_copy(update={"curve": curve}))
    assert "overtraining" not in [
        finding.name for finding in findings_of(run)
    ]  # 360 images: 7 points are two deviations


def test_a_first_stage_that_taught_nothing(healthy_run: Run, find: Callable) -> None:
    accuracies = (0.1022, 0.10, 0.11, 0.35, 0.50)  # fabricated after the note on the public feature bank
    curve = tuple(Point(epoch=e + 1, accuracy=a, balanced_accuracy=a, nll=1.0) for e, a in enumerate(accuracies))
    finding = find(replace(healthy_run, record=healthy_run.record.model_copy(update={"curve": curve})), "idle_epochs")
    assert finding.epochs == (1, 3) and "first 3 of 5 epochs" in finding.title


def test_confidence_far_from_accuracy(healthy_run: Run, claiming: Callable[..., Run], find: Callable) -> None:
    finding = find(claiming(healthy_run, calibration_error=0.32), "miscalibrated")
    assert "32 points" in finding.title
    assert "miscalibrated" not in [f.name for f in findings_of(claiming(healthy_run, calibration_error=0.14))]


def test_a_method_that_talks_twice(healthy_run: Run, claiming: Callable[..., Run], find: Callable) -> None:
    assert "2 times" in find(claiming(healthy_run, phases=2), "more_than_one_phase").title


def sent(means: Tensor, prototypes: Tensor, within: float) -> Sent:
    """Fabricated upload: ten images of each class around its mean, with a variance `within` in each direction."""
    between = (means - means.mean(0)).square().mean(0)
    tensors = {
        "class_means/means": means,
        "moments/mean": means.mean(0),
        "moments/std": (between + within).sqrt(),
        "weights/head.prototypes": prototypes,
    }
    return Sent(frozenset({"weights", "moments", "class_means"}), (10,) * len(means), tensors)


def simplex(classes: int) -> Tensor:
    """The corners of a simplex about the origin, (C, C)."""
    return torch.eye(classes) - 1 / classes


def test_neural_collapse_measures_have_their_closed_forms(healthy_run: Run) -> None:
    etf = simplex(4)
    found = geometry(replace(healthy_run, upload=lambda k: sent(5 + 3 * etf, 2 * etf, within=0.01)), 0)
    assert found is not None
    # tr Σ_B of corners of length 3 sqrt(3/4), tr Σ_W = 4 · 0.01
    assert found.nc1 == pytest.approx(0.04 / (9 * 0.75), rel=1e-3)
    assert found.between == pytest.approx(9 * 0.75 / (9 * 0.75 + 0.04), rel=1e-5)
    assert found.nc2_norm == pytest.approx(0, abs=1e-6) and found.nc2_angle == pytest.approx(0, abs=1e-6)
    assert found.nc3 == pytest.approx(1, abs=1e-6)


def test_neural_collapse_is_a_note(healthy_run: Run, find: Callable) -> None:
    run = replace(healthy_run, upload=lambda k: sent(3 * simplex(10), simplex(10), within=0.001))
    finding = find(run, "neural_collapse")
    assert finding.severity == "note" and "NC4" in [fact.name for fact in finding.facts]


def test_features_without_classes(healthy_run: Run, find: Callable) -> None:
    run = replace(healthy_run, upload=lambda k: sent(0.01 * simplex(10), simplex(10), within=1.0))
    assert find(run, "feature_collapse").clients == (0, 1, 2)
    constant = replace(healthy_run, upload=lambda k: sent(torch.ones(10, 4), torch.eye(10, 4), within=0.0))
    assert "feature_collapse" in [finding.name for finding in findings_of(constant)]


def test_prototypes_in_one_place(healthy_run: Run, find: Callable) -> None:
    prototypes = torch.eye(10)
    prototypes[7] = prototypes[2] + 0.1 * prototypes[7]
    run = replace(healthy_run, upload=lambda k: sent(simplex(10), prototypes, within=0.1))
    assert "classes 2 and 7" in find(run, "prototype_collapse").title
