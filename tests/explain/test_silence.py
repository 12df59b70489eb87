"""Without evidence nothing is said: every diagnosis on runs that lack what it reads."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedshot.explain.diagnoses import DIAGNOSES
from fedshot.explain.engine import findings_of
from fedshot.explain.run import Run, Sent

FROM_TELEMETRY = [
    "lambda_explosion",
    "annealing_cancelled",
    "lambda_tracks_losses",
    "lambda_lags",
    "hidden_rate_cut",
    "clipping_couples",
    "alignment_without_effect",
    "alignment_is_weight_decay",
    "prototypes_shrunk",
    "equal_terms",
    "dead_term",
    "gradient_conflict",
    "stage_taught_nothing",
    "client_hardly_trained",
]
FROM_UPLOADS = ["feature_collapse", "prototype_collapse", "neural_collapse", "clipping_couples", "holders_outweighed"]


@pytest.fixture(scope="module")
def exploding(alone: Callable[..., Run]) -> Run:
    return alone("V12", 12, {"sigma.learning_rate": 0.1})


@pytest.fixture(scope="module")
def coupled(alone: Callable[..., Run]) -> Run:
    return alone("V7", 3, {"weight": 5000.0, "anneal": "constant"}, clip_scope="joint")


def none_of(run: Run) -> Mapping[int, Any]:
    """The same rows with nothing but client and epoch."""
    return {
        k: [{n: v if n in ("client", "epoch") else None for n, v in r.items()} for r in rows]
        for k, rows in run.rows.items()
    }


@pytest.mark.parametrize("name", FROM_TELEMETRY)
def test_without_telemetry(name: str, exploding: Run, coupled: Run) -> None:
    for run in (exploding, coupled):
        for rows in ({}, {0: []}, none_of(run), {0: [{"client": 0, "epoch": 1}]}):
            assert DIAGNOSES[name](replace(run, rows=rows)) == []


@pytest.mark.parametrize("name", FROM_UPLOADS)
def test_without_uploads(name: str, exploding: Run, coupled: Run) -> None:
    bare = Sent(frozenset({"weights"}), (10,) * 10, {})
    for run in (exploding, coupled):
        for upload in (lambda k: None, lambda k: bare):
            assert DIAGNOSES[name](replace(run, upload=upload)) == []


def test_a_column_that_is_missing_breaks_nothing(exploding: Run) -> None:
    whole = {finding.name for finding in findings_of(exploding)}
    for column in exploding.rows[0][0]:
        if column in ("client", "epoch"):
            continue
        rows = {
            k: [{n: v for n, v in row.items() if n != column} for row in of_k] for k, of_k in exploding.rows.items()
        }
        assert {finding.name for finding in findings_of(replace(exploding, rows=rows))} <= whole | {"equal_terms"}


def test_a_record_without_class_counts_or_clients_alone(exploding: Run) -> None:
    record = exploding.record
    clients = tuple(c.model_copy(update={"per_class_alone": None, "accuracy_alone": None}) for c in record.clients)
    bare = record.model_copy(update={"partition": {"recipe": "by hand"}, "clients": clients})
    names = {finding.name for finding in findings_of(replace(exploding, record=bare))}
    assert names.isdisjoint(
        {"class_nobody_holds", "class_never_predicted", "favours_largest_client", "clients_overlap"}
    )
    assert "lambda_explosion" in names


def test_a_given_weight_is_not_taken_for_a_learned_one(alone: Callable[..., Run]) -> None:
    names = {finding.name for finding in findings_of(alone("V7", 6, {"weight": 100.0, "anchors": "zero"}))}
    assert not {name for name in names if name.startswith(("lambda", "annealing", "hidden"))}


def test_every_finding_has_the_name_of_its_diagnosis_and_its_numbers(
    exploding: Run, coupled: Run, healthy: Path
) -> None:
    for run in (exploding, coupled):
        for name, diagnose in DIAGNOSES.items():
            for finding in diagnose(run):
                assert finding.name == name
                assert any(fact.limit for fact in finding.facts), name
                assert any(character.isdigit() for character in finding.title), finding.title
                assert finding.cause and finding.remedies
