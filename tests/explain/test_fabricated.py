"""Failures that take long to train: telemetry, curves and uploads are fabricated here, and marked as such."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedshot.explain.diagnoses.geometry import geometry
from fedshot.explain.engine import findings_of
from fedshot.explain.run import Run, Sent
from fedshot.record import HeldOut, Point
from fedshot.student import Student

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


@pytest.mark.parametrize(
    ("accuracy", "images", "said"),
    [(0.95, 100, "harder"), (0.6, 400, "easier"), (0.84, 1000, ""), (0.95, 10, "")],  # too near, and too few to tell
)
def test_test_images_of_another_kind(accuracy: float, images: int, said: str, healthy_run: Run, find: Callable) -> None:
    final = healthy_run.record.final.model_copy(update={"accuracy": 0.8})
    held = HeldOut(images=images, accuracy=accuracy, balanced_accuracy=accuracy, nll=1.0)
    run = replace(healthy_run, record=healthy_run.record.model_copy(update={"final": final, "held_out": held}))
    if said:
        title = find(run, "tested_on_another_kind").title
        assert f"{said} than what clients hold: 80.0% against {accuracy:.1%}" in title
    else:
        assert "tested_on_another_kind" not in [found.name for found in findings_of(run)]


def test_a_first_stage_that_taught_nothing(healthy_run: Run, find: Callable) -> None:
    accuracies = (0.1022, 0.10, 0.11, 0.35, 0.50)  # fabricated after the note on the public feature bank
    curve = tuple(Point(epoch=e + 1, accuracy=a, balanced_accuracy=a, nll=1.0) for e, a in enumerate(accuracies))
    finding = find(replace(healthy_run, record=healthy_run.record.model_copy(update={"curve": curve})), "idle_epochs")
    assert finding.epochs == (1, 3) and "first 3 of 5 epochs" in finding.title


def staged(
    run: Run, stage_one: Sequence[int], accuracies: Mapping[int, float], contrast: Sequence[float] | None = None
) -> Run:
    """Fabricated: which epochs were stage 1, what the evaluation points said, and the contrast loss of every epoch."""
    curve = tuple(Point(epoch=e, accuracy=a, balanced_accuracy=a, nll=1.0) for e, a in accuracies.items())
    losses = contrast or [4.0 - e / 10 for e in range(len(stage_one))]
    rows = [
        {"client": 0, "epoch": e + 1, "stage_one": float(flag), "loss_contrast": losses[e]}
        for e, flag in enumerate(stage_one)
    ]
    return replace(run, record=run.record.model_copy(update={"curve": curve}), rows={0: rows})


ROUNDS = (1, 0, 0, 1, 0, 0)  # one epoch in three is stage 1


def test_a_stage_that_ends_at_guessing(healthy_run: Run, find: Callable) -> None:
    finding = find(staged(healthy_run, ROUNDS, {1: 0.1022, 3: 0.3, 4: 0.35, 6: 0.5}), "stage_taught_nothing")
    assert "10.2% after epoch 1" in finding.title and finding.epochs == (1, 4)
    assert "fedshot run fafi" in finding.remedies[0]


def test_a_stage_that_undoes_the_other_each_time(healthy_run: Run, find: Callable) -> None:
    again = (*ROUNDS, 1, 0)
    finding = find(staged(healthy_run, again, {3: 0.6, 4: 0.4, 6: 0.7, 7: 0.45, 8: 0.7}), "stage_taught_nothing")
    assert "each of the 2 times" in finding.title and "70.0% after epoch 6 to 45.0% after epoch 7" in finding.title


def test_a_stage_that_does_not_lower_its_own_loss(healthy_run: Run, find: Callable) -> None:
    idle = (4.0, 3.0, 2.5, 3.9, 2.4, 2.3)
    finding = find(staged(healthy_run, ROUNDS, {6: 0.5}, idle), "stage_taught_nothing")
    assert "contrast 4 in its first epoch and 3.9 in its last" in finding.title


@pytest.mark.parametrize(
    ("stage_one", "accuracies", "contrast"),
    [
        (ROUNDS, {1: 0.30, 3: 0.5, 4: 0.55, 6: 0.6}, None),  # each stage adds to the other
        (ROUNDS, {3: 0.60, 4: 0.58, 6: 0.6}, None),  # a fall within the noise of 360 images
        (ROUNDS, {6: 0.6}, (4.0, 3.0, 2.5, 2.4, 2.2, 2.0)),  # its own loss falls
        (ROUNDS[:3], {3: 0.6}, None),  # one epoch of it, and no point: no evidence
        ((0, 0, 0, 0), {1: 0.1, 4: 0.6}, None),  # no stages
    ],
)
def test_a_stage_that_taught_something(
    stage_one: tuple[int, ...], accuracies: dict[int, float], contrast: tuple[float, ...] | None, healthy_run: Run
) -> None:
    run = staged(healthy_run, stage_one, accuracies, contrast)
    assert "stage_taught_nothing" not in [finding.name for finding in findings_of(run)]


def test_a_stage_of_other_losses_is_no_start_of_this_one(healthy_run: Run, find: Callable) -> None:
    def ignorant(losses: Sequence[float]) -> Run:
        run = staged(healthy_run, (1, 0, 0, 0, 0, 0), {6: 0.5})
        rows = [{**row, "loss_classification": loss} for row, loss in zip(run.rows[0], losses, strict=True)]
        clients = [c.model_copy(update={"per_class_alone": (0.4,) * 10}) for c in run.record.clients]
        return replace(run, record=run.record.model_copy(update={"clients": tuple(clients)}), rows={0: rows})

    assert find(ignorant((0.0, 2.0, 2.0, 2.0, 2.0, 1.9)), "client_hardly_trained").clients == (0,)
    learned = findings_of(ignorant((0.0, 2.0, 1.8, 1.7, 1.6, 1.5)))  # none of it in stage 1
    assert "client_hardly_trained" not in [finding.name for finding in learned]


def opposed(run: Run, cosine: float, last_align: float, weight: float = 1.0) -> Run:
    """Fabricated: an alignment whose gradient over the prototypes has this cosine with that of the base loss."""
    numbers = {"gradient_cosine_head": cosine, "lambda_effective": weight, "base_loss": 2.0}
    rows = [{"client": 0, "epoch": e, **numbers, "align_loss": 1.0 if e < 6 else last_align} for e in range(1, 7)]
    return replace(run, rows={0: rows})


def test_losses_that_pull_against_each_other(healthy_run: Run, find: Callable) -> None:
    lost = find(opposed(healthy_run, -0.8, last_align=1.5), "gradient_conflict")
    assert lost.severity == "warning" and "at the prototypes of client 0" in lost.title
    assert "the alignment loss rose from 1 to 1.5" in lost.title
    assert find(opposed(healthy_run, -0.8, last_align=0.5), "gradient_conflict").severity == "note"
    for harmless in (opposed(healthy_run, -0.2, 1.5), opposed(healthy_run, -0.8, 1.5, weight=0.0)):
        assert "gradient_conflict" not in [finding.name for finding in findings_of(harmless)]


def test_confidence_far_from_accuracy(healthy_run: Run, claiming: Callable[..., Run], find: Callable) -> None:
    def told(confidence: float | None) -> str:
        final = {"accuracy": 0.6, "calibration_error": 0.32, "mean_confidence": confidence}
        return find(claiming(healthy_run, **final), "miscalibrated").title

    assert "32 points" in told(0.92) and "over-confident, 92.0% sure and 60.0% right" in told(0.92)
    assert "under-confident, 28.0% sure and 60.0% right" in told(0.28)
    assert "on some images and under-confident on others" in told(0.65)
    assert "confident" not in told(None)  # an older record
    assert "miscalibrated" not in [f.name for f in findings_of(claiming(healthy_run, calibration_error=0.14))]


def taught(run: Run, rule: str, taught: float, tested: float, accuracy: float = 0.84, **settings: object) -> Run:
    """Fabricated: a student of five models that are right on 0.89 of the test images."""
    student = Student(
        accuracy=accuracy,
        teacher_accuracy=0.89,
        accuracy_kept=None,
        agreement=tested,
        agreement_taught=taught,
        models=1,
        teacher_models=5,
        seconds=1.0,
        teacher_seconds=5.0,
    )
    final = run.record.final.model_copy(update={"fusion": rule})
    spec = run.record.spec.model_copy(update=settings)
    return replace(run, record=run.record.model_copy(update={"student": student, "final": final, "spec": spec}))


def test_a_student_of_images_of_another_kind(healthy_run: Run, find: Callable) -> None:
    run = taught(healthy_run, "distilled:teacher=logits,images=procedural,count=500", 0.97, 0.86)
    finding = find(run, "student_behind")
    assert "5.0 points behind the 5 that taught it" in finding.title and finding.severity == "warning"
    assert "97.0% of the images that taught it and on 86.0% of the test images" in finding.title
    assert "too few or of another kind" in finding.cause
    told = " ".join(finding.remedies)
    assert "-f distilled:teacher=logits,images=procedural`" in told  # four times 500 is what is usual
    assert "--public 0.1 --fusion distilled:teacher=logits`" in told  # by default its images are public ones
    assert "beside=common" not in told  # these clients sent no common features


def test_a_student_of_too_few_public_images(healthy_run: Run, find: Callable) -> None:
    finding = find(taught(healthy_run, "distilled", 0.97, 0.60, 0.59, public="0.1"), "student_behind")
    assert finding.severity == "severe" and "--public 0.2" in " ".join(finding.remedies)
    foreign = taught(healthy_run, "distilled", 0.97, 0.60, 0.59, public="cifar100")
    assert "--public 0.1" in " ".join(find_remedies(foreign))  # images of the task instead


def test_the_one_model_of_routed_clients(healthy_run: Run) -> None:
    behind = find_remedies(taught(healthy_run, "single", 0.97, 0.86))
    held = sum(client.samples for client in healthy_run.record.clients)
    assert f"-f single:count={4 * held}`" in behind[0]
    assert "--public 0.1 --fusion single:images=public`" in behind[1] and len(behind) == 2
    (lazy,) = find_remedies(taught(healthy_run, "single:views=2", 0.87, 0.86))
    assert "-f single:views=2,student.passes=30`" in lazy


def test_a_student_that_has_not_learned_its_lesson(healthy_run: Run, find: Callable) -> None:
    finding = find(taught(healthy_run, "distilled:teacher=logits:weights=uniform", 0.87, 0.86), "student_behind")
    assert "has not learned what it was shown" in finding.cause
    assert "student.passes=30" in finding.remedies[0] and "teacher=logits:weights=uniform" in finding.remedies[0]
    options = {
        "teacher": "features:weights=uniform,scale=unit"
    }  # of the method; typed for the rule with ; in place of ,
    method = taught(healthy_run, "distilled", 0.87, 0.86, method="distilled", options=options)
    assert "'distilled:teacher=features:weights=uniform;scale=unit,student.passes=30'" in find_remedies(method)[0]


def test_a_student_that_is_not_behind(healthy_run: Run) -> None:
    for run in (
        taught(healthy_run, "distilled", 0.99, 0.99, accuracy=0.875),  # by less than two points
        taught(healthy_run, "distilled", 0.97, 0.30, accuracy=0.82),  # two deviations are 8.8 points on 360 images
        healthy_run,
    ):
        assert "student_behind" not in [finding.name for finding in findings_of(run)]
    assert find_remedies(taught(healthy_run, "mine.py:Rule", 0.97, 0.86)) == ()


def find_remedies(run: Run) -> tuple[str, ...]:
    return next(finding.remedies for finding in findings_of(run) if finding.name == "student_behind")


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


def test_how_often_a_class_comes_and_classes_of_few_images_do_not_matter(healthy_run: Run) -> None:
    """Two classes of one deviation each, 2 apart; 99 in 100 images are of one, and of a third there is one image."""
    counts = torch.tensor([990.0, 10, 1])
    means = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [50.0, 50.0]])
    share = counts / counts.sum()
    mean = (share[:, None] * means).sum(0)
    spread = (share[:, None] * (means - mean).square()).sum(0) + 1.0
    tensors = {"class_means/means": means, "moments/mean": mean, "moments/std": spread.sqrt()}
    told = Sent(frozenset({"weights", "moments", "class_means"}), (990, 10, 1), tensors)
    found = geometry(replace(healthy_run, upload=lambda k: told), 0)
    assert found is not None and found.classes == 2
    assert found.nc1 == pytest.approx(2.0, rel=1e-4) and found.between == pytest.approx(1 / 3, rel=1e-4)
    few = replace(told, class_counts=(990, 4, 1))
    assert geometry(replace(healthy_run, upload=lambda k: few), 0) is None


def test_neural_collapse_is_a_note(healthy_run: Run, find: Callable) -> None:
    run = replace(healthy_run, upload=lambda k: sent(3 * simplex(10), simplex(10), within=0.001))
    finding = find(run, "neural_collapse")
    assert finding.severity == "note"
    told = {fact.name.partition(",")[0]: fact.value for fact in finding.facts}
    assert {"NC1", "NC2", "NC3", "NC4"} <= told.keys()
    (client,) = [k for k, rows in run.rows.items() if rows[-1]["nearest_mean_agreement"] == told["NC4"]][:1]
    assert client in finding.clients and told["NC4"] > 0.8  # the features of a run that was really trained
    silent = {k: [{**row, "nearest_mean_agreement": None} for row in rows] for k, rows in run.rows.items()}
    assert "NC4" not in str(find(replace(run, rows=silent), "neural_collapse").facts)


def test_features_without_classes(healthy_run: Run, find: Callable) -> None:
    run = replace(healthy_run, upload=lambda k: sent(0.01 * simplex(10), simplex(10), within=1.0))
    assert find(run, "feature_collapse").clients == (0, 1, 2) and find(run, "feature_collapse").severity == "severe"
    constant = replace(healthy_run, upload=lambda k: sent(torch.ones(10, 4), torch.eye(10, 4), within=0.0))
    assert "feature_collapse" in [finding.name for finding in findings_of(constant)]


@pytest.mark.parametrize(("images", "severity"), [(11, "severe"), (9, "warning")])
def test_a_collapsed_client_of_few_images_is_no_great_loss(
    images: int, severity: str, healthy_run: Run, find: Callable
) -> None:
    good, bad = (sent(s * simplex(10), p, within=1.0) for s, p in ((3.0, simplex(10)), (0.01, torch.ones(10, 10))))
    clients = healthy_run.record.clients
    held = [c.model_copy(update={"samples": n}) for c, n in zip(clients, (images, 100 - images, 0), strict=True)]
    record = healthy_run.record.model_copy(update={"clients": tuple(held)})
    run = replace(healthy_run, record=record, upload=lambda k: good if k else bad)
    for name in ("feature_collapse", "prototype_collapse"):
        finding = find(run, name)
        assert (finding.clients, finding.severity) == ((0,), severity)


def test_a_rule_that_goes_by_a_handful_of_images(
    healthy_run: Run, claiming: Callable[..., Run], find: Callable
) -> None:
    def held_back(*counts: int, fusion: str = "typicality") -> Run:
        told = zip(healthy_run.record.clients, counts, strict=True)
        clients = [c.model_copy(update={"samples": 100, "validation_samples": n}) for c, n in told]
        record = healthy_run.record.model_copy(update={"clients": tuple(clients)})
        return claiming(replace(healthy_run, record=record), fusion=fusion)

    finding = find(held_back(3, 3, 40), "judged_by_few")
    assert finding.severity == "note" and "2 of 3 have fewer than 10, 3 in the median" in finding.title
    assert next(fact.value for fact in finding.facts if fact.name.startswith("standard error")) == pytest.approx(0.5)
    assert find(held_back(3, 9, 9, fusion="dynamic_prototypes:reliability=1"), "judged_by_few")
    own = held_back(3, 3, 40, fusion="distilled")  # by its bare name the rule as the method made it
    spec = own.record.spec.model_copy(update={"method": "distilled", "options": {"teacher": "typicality"}})
    assert find(replace(own, record=own.record.model_copy(update={"spec": spec})), "judged_by_few")
    for run in (
        held_back(3, 3, 40, fusion="distilled"),
        held_back(3, 10, 10),
        held_back(3, 3, 3, fusion="features"),
        held_back(3, 3, 3, fusion="dynamic_prototypes:reliability=0"),
        held_back(3, 3, 3, fusion="gone.py:mine"),
    ):
        assert "judged_by_few" not in [found.name for found in findings_of(run)]


HELD = [[9 * ((k + c) % 3 > 0) for c in range(10)] for k in range(3)]


def lengths(run: Run, held: float, foreign: float, classes: int = 10, silent: tuple[int, ...] = ()) -> Run:
    """A run with other holders, and prototypes so long of classes that a client holds, and of others.

    Those of other classes than the first few are all as long as the former.
    """
    partition = {**run.record.partition, "class_counts": HELD, "unknown": silent}
    divided = run.record.model_copy(update={"partition": partition})

    def upload(client: int) -> Sent:
        length = torch.tensor([held if n or c >= classes else foreign for c, n in enumerate(HELD[client])])
        return sent(simplex(10), length[:, None] * torch.eye(10), within=0.1)

    return replace(run, record=divided, upload=upload)


def test_prototypes_of_those_who_never_saw_a_class_outweigh_its_holders(
    healthy_run: Run, claiming: Callable[..., Run], find: Callable
) -> None:
    finding = find(lengths(healthy_run, 1.5, 15.0), "holders_outweighed")
    assert "1.5 long and the others' 15" in finding.title and "prototypes=class_counts" in finding.remedies[0]
    told = {fact.name.partition(",")[0]: fact.value for fact in finding.facts}
    share = 2 / (2 + 100)  # two clients of three hold a class; their squares are a hundredth of the other's
    assert told["holders' share"] == pytest.approx(share, rel=1e-5)
    assert told["against their share of the clients"] == pytest.approx(1.5 * share, rel=1e-5)
    for run in (
        lengths(healthy_run, 15.0, 15.0),
        lengths(healthy_run, 1.5, 15.0, classes=5),
        lengths(healthy_run, 1.5, 15.0, silent=(2,)),
        claiming(lengths(healthy_run, 1.5, 15.0), fusion="features:prototypes=class_counts"),
        claiming(lengths(healthy_run, 1.5, 15.0), fusion="class_weighted"),
    ):
        assert "holders_outweighed" not in [found.name for found in findings_of(run)]


def test_prototypes_in_one_place(healthy_run: Run, find: Callable) -> None:
    prototypes = torch.eye(10)
    prototypes[7] = prototypes[2] + 0.1 * prototypes[7]
    run = replace(healthy_run, upload=lambda k: sent(simplex(10), prototypes, within=0.1))
    assert "classes 2 and 7" in find(run, "prototype_collapse").title
