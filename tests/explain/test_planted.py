"""A failure is planted in a real, tiny training on digits, and the post-mortem names it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedshot.explain.engine import findings_of
from fedshot.explain.finding import Finding
from fedshot.explain.loaded import load
from fedshot.explain.run import Run, Sent
from fedshot.record import HeldOut


def fact(finding: Finding, start: str) -> float:
    (found,) = [fact.value for fact in finding.facts if fact.name.startswith(start)]
    assert not isinstance(found, str)
    return found


def test_nothing_severe_in_a_healthy_run(healthy_run: Run) -> None:
    assert {finding.name: finding.severity for finding in findings_of(healthy_run)} == {
        "equal_terms": "note",
        "dead_term": "note",
    }
    assert healthy_run.record.final.accuracy > 0.9


def test_attenuation_on_the_wrong_term(alone: Callable[..., Run], find: Callable) -> None:
    run = alone("V12", 12, {"sigma.learning_rate": 0.1})
    finding = find(run, "lambda_explosion")
    assert "wrong term" in finding.cause and "σ_align fell" in finding.title
    assert fact(finding, "growth of λ") >= 10 and fact(finding, "share of the growth") > 0.5
    assert finding.clients == (0,) and finding.epochs is not None and finding.epochs[1] == 12
    assert fact(finding, "predicted equilibrium") == pytest.approx(run.rows[0][-1]["lambda_equilibrium"])
    assert "fedshot run aurora" in finding.remedies[0]


def test_annealing_that_a_learned_weight_takes_back(alone: Callable[..., Run], find: Callable) -> None:
    finding = find(alone("V11", 20, {"sigma.learning_rate": 0.02}), "annealing_cancelled")
    assert fact(finding, "fall of a") >= 3 and fact(finding, "largest to smallest") <= 1.5
    assert fact(finding, "growth of λ") > 2
    assert "L_b/(a·L_a)" in finding.cause


def test_a_weight_that_is_the_ratio_of_the_losses(alone: Callable[..., Run], find: Callable) -> None:
    finding = find(alone("V10", 12, {"sigma.learning_rate": 0.02}), "lambda_tracks_losses")
    assert fact(finding, "λ, last") == pytest.approx(fact(finding, "L_b/L_a"), rel=0.3)
    assert "λ* = L_b/L_a" in finding.cause


def test_a_learning_rate_that_the_loss_scale_cuts(alone: Callable[..., Run], find: Callable) -> None:
    finding = find(alone("V10", 4, {"form": "first", "sigma.learning_rate": 0.05}), "hidden_rate_cut")
    assert fact(finding, "base_scale") < 0.5
    assert fact(finding, "learning rate that acted") == pytest.approx(0.05 * fact(finding, "base_scale"))
    assert "form=rescaled" in finding.remedies[0]


def test_a_weight_that_never_reaches_its_equilibrium(alone: Callable[..., Run], find: Callable) -> None:
    finding = find(alone("V14", 12, {"sigma.learning_rate": 1e-4}), "lambda_lags")
    assert finding.severity == "note" and fact(finding, "ratio") > 3
    assert "sigma.learning_rate=0.001" in finding.remedies[0]


def test_clipping_that_lets_lambda_slow_the_encoder(alone: Callable[..., Run], find: Callable) -> None:
    run = alone("V7", 3, {"weight": 5000.0, "anneal": "constant"}, clip_scope="joint")
    finding = find(run, "clipping_couples")
    assert finding.severity == "severe"
    # the closed form 2 λ sqrt(L_a / (C d)) is the norm that was measured
    assert fact(finding, "length of λ∇L_a") == pytest.approx(fact(finding, "gradient norm"), rel=0.05)
    apart = alone("V7", 3, {"weight": 5000.0, "anneal": "constant"}, clip_scope="group")
    assert "clipping_couples" not in [other.name for other in findings_of(apart)]


def test_alignment_that_is_weight_decay(alone: Callable[..., Run], find: Callable) -> None:
    finding = find(alone("V7", 6, {"weight": 100.0, "anchors": "zero"}), "alignment_is_weight_decay")
    assert fact(finding, "shortening") >= 0.02 and fact(finding, "change of the cosine") < 0.1


def test_alignment_without_effect(alone: Callable[..., Run], find: Callable) -> None:
    drawn = alone("V7", 5, {"weight": 0.001, "measure": "features"})  # nothing was to happen to prototypes
    assert "alignment_without_effect" not in [finding.name for finding in findings_of(drawn)]
    finding = find(alone("V7", 5, {"weight": 0.001}), "alignment_without_effect")
    assert abs(fact(finding, "change of the cosine")) < 0.01
    assert "alignment.measure=cosine" in finding.remedies[0]


def test_the_second_cross_entropy_of_fafi(healthy_run: Run, find: Callable) -> None:
    finding = find(healthy_run, "equal_terms")
    assert "classification and prototype_feature" in finding.title and "2·CE" in finding.cause


def test_the_dead_term_of_fafi(healthy_run: Run, find: Callable) -> None:
    finding = find(healthy_run, "dead_term")
    assert "prototype_prototype" in finding.title
    assert fact(finding, "smallest p_c·p_c") > 100  # nats; float32 has lost everything at 104


REPELLING = """
from dataclasses import replace

from fedshot.local.objective import Objective, Step, Term
from fedshot.local.weighting import Scheduled
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CLASSIFICATION, prototypes


def repelling() -> Method:
    def away(step: Step):
        return 1 + (step.unit * prototypes(step).detach()[step.labels]).sum(1).mean() / 22.6

    def objective(client: Client) -> Objective:
        return Objective((CLASSIFICATION,), (Term("away", away),), Scheduled(1.0))

    return replace(fafi(), name="repelling", objective=objective)
"""


def test_an_alignment_that_works_against_the_base_loss(
    alone: Callable[..., Run], find: Callable, tmp_path: Path
) -> None:
    (tmp_path / "repelling.py").write_text(REPELLING)
    finding = find(alone(str(tmp_path / "repelling.py"), 6), "gradient_conflict")
    assert finding.severity == "warning" and "at the features of client 0" in finding.title
    assert fact(finding, "median cosine") < -0.3 and "the alignment loss rose" in finding.title


def test_a_client_that_diverges(divided: Callable, trained: Callable[..., Path], find: Callable) -> None:
    file = divided((160, range(10)), (16, range(8)))
    folder = trained("fafi", clients=2, partition_file=file, epochs=3, batch_size=16, lr=7.0, weight_decay=1.0)
    finding = find(load(folder)[0], "client_diverged")
    assert finding.severity == "severe" and finding.clients == (0,)
    assert "nobody else holds classes 8 and 9" in finding.title
    assert fact(finding, "learning rate × weight decay") == 7.0 and "weight decay alone" in finding.cause
    assert "lr=0.7" in finding.remedies[0]


def test_clients_that_overlap(trained: Callable[..., Path], find: Callable) -> None:
    folder = trained("fafi", clients=2, recipe="released", alpha=1.0, epochs=1, data="digits:images=200")
    finding = find(load(folder)[0], "clients_overlap")
    assert finding.severity == "severe" and fact(finding, "share with two") > 0.05
    assert "--recipe dirichlet" in finding.remedies[0]


def test_habits_of_published_code(alone: Callable[..., Run], find: Callable) -> None:
    finding = find(alone("fafi", 2, draws="batch", momentum_epochs=1, normalisation="views"), "published_habits")
    assert finding.severity == "severe"
    for told in ("one draw of views", "anew every epoch", "test images are not"):
        assert told in finding.title
    assert [(fact.name, fact.text) for fact in finding.facts] == [
        ("normalisation", "views"),
        ("draws", "batch"),
        ("momentum_epochs", "1"),
    ]
    assert not any(word in finding.remedies[0] for word in ("draws", "momentum_epochs", "normalisation"))
    coloured = alone("fafi", 2, normalisation="twice", augmentation="natural")
    again = find(coloured, "published_habits").remedies[0]
    assert "augmentation=natural" in again and "normalisation" not in again  # one thing differs
    mild = find(alone("fafi", 2, draws="batch"), "published_habits")
    assert mild.severity == "warning" and len(mild.facts) == 1


@pytest.fixture(scope="module")
def gap(divided: Callable, trained: Callable[..., Path]) -> Run:
    """Nobody holds class 9, one client has two images, one has a single one, and the rule reads the test images."""
    file = divided((48, range(9)), (48, range(9)), (2, (3,)), (1, (5,)))
    common = {"epochs": 4, "batch_size": 16, "fusion": "batch_moments"}
    return load(trained("fafi", clients=4, partition_file=file, **common))[0]


def test_a_class_that_nobody_holds(gap: Run, find: Callable) -> None:
    finding = find(gap, "class_nobody_holds")
    assert finding.severity == "severe" and "class 9" in finding.title
    assert fact(finding, "bound of the accuracy") == pytest.approx(0.9, abs=0.02)


def test_a_client_with_two_images(gap: Run, find: Callable) -> None:
    finding = find(gap, "client_hardly_trained")
    assert 2 in finding.clients and fact(finding, "samples") == 2 and fact(finding, "steps") == 4


def test_a_client_with_one_image(gap: Run, find: Callable) -> None:
    finding = find(gap, "client_skipped")
    assert finding.clients == (3,) and "1 sample: BatchNorm needs two" in finding.title


def test_a_transductive_score(gap: Run, find: Callable) -> None:
    assert "batch_moments" in find(gap, "transductive_score").title


@pytest.fixture(scope="module")
def skewed(divided: Callable, trained: Callable[..., Path]) -> Run:
    """The largest client holds eight classes, a small one the other two, and logits are weighted by samples."""
    file = divided((240, range(8)), (40, (8, 9)))
    return load(trained("ensemble", clients=2, partition_file=file, epochs=5, batch_size=16))[0]


def test_a_class_that_is_never_predicted(skewed: Run, find: Callable) -> None:
    finding = find(skewed, "class_never_predicted")
    assert finding.severity == "severe" and "client 1 alone recognises" in finding.title
    assert finding.clients == (1,)


def test_a_fusion_that_favours_the_largest_client(skewed: Run, find: Callable) -> None:
    finding = find(skewed, "favours_largest_client")
    assert finding.clients == (0,) and fact(finding, "excess") == pytest.approx(0.2, abs=0.05)


def test_routing_that_loses_what_clients_know(skewed: Run, find: Callable) -> None:
    finding = find(skewed, "routing_loss")
    final = skewed.record.final
    assert fact(finding, "oracle routing −") == pytest.approx(final.oracle_routing - final.accuracy)
    assert "-f class_weighted" in finding.remedies[0] and "typicality" not in finding.remedies[0]
    assert "--validation 0.1" in finding.remedies[1]
    other = skewed.record.spec.model_copy(update={"method": "recommended", "options": {}})
    silent = replace(skewed, record=skewed.record.model_copy(update={"spec": other}))
    assert len(find(silent, "routing_loss").remedies) == 1  # whose clients send no familiarity for this rule
    spec = skewed.record.spec.model_copy(update={"validation": 0.1})
    held_out = HeldOut(images=20, accuracy=final.accuracy, balanced_accuracy=0.5, nll=1.0)
    held_back = replace(skewed, record=skewed.record.model_copy(update={"spec": spec, "held_out": held_out}))
    assert len(find(held_back, "routing_loss").remedies) == 1  # its clients send no familiarity in any case
    assert "--on held-out`" in find(held_back, "routing_loss").remedies[0]
    assert "--on" not in finding.remedies[0]
    telling = replace(skewed, upload=lambda k: Sent(frozenset({"weights", "common"}), (10,) * 10, {}))
    assert "-f common" in find(telling, "routing_loss").remedies[0]
