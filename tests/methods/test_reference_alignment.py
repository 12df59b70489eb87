"""FAFI drawn to a reference distribution, and FAFI's clients with prototypes weighted row by row, as whole runs."""

from collections.abc import Callable
from typing import Any

import pytest

from fedshot.errors import UserError
from fedshot.prepare import prepare
from fedshot.spec import Spec

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]
FORMS = [
    {"distance": d, "reference": r} for d in ("mmd", "coral", "sliced_wasserstein") for r in ("sphere", "gaussian")
]


def test_every_distance_and_reference_is_another_run(quick: Quick, finished: FinishedRun) -> None:
    runs = [finished(quick("reference_alignment", form, evaluate_at=())) for form in FORMS]
    assert len({tuple(run.uploads) for run in runs}) == len(FORMS)
    for run in runs:
        first = run.rows(0)[0]
        assert first["lambda_effective"] == first["lambda_raw"] == 1.0
        assert first["align_loss"] == first["loss_reference"] > 0


@pytest.mark.parametrize("distance", ["mmd", "coral", "sliced_wasserstein"])
def test_weight_0_is_fafi_and_a_strong_pull_brings_features_nearer(
    distance: str, quick: Quick, finished: FinishedRun
) -> None:
    idle, strong = (
        finished(quick("reference_alignment", {"distance": distance, "weight": weight}, evaluate_at=()))
        for weight in (0, 30)
    )
    assert idle.uploads == finished(quick("fafi")).uploads
    assert strong.rows(0)[-1]["align_loss"] < 0.97 * idle.rows(0)[-1]["align_loss"]  # measured at weight 0 as well


def test_the_reference_costs_no_bytes(quick: Quick, finished: FinishedRun) -> None:
    fafi, aligned = (finished(quick(name)).folder.upload(0).read_bytes() for name in ("fafi", "reference_alignment"))
    names = len("reference_alignment") - len("fafi")  # headers name the method, and are padded to 8 bytes
    assert 0 <= len(aligned) - len(fafi) <= names + 8


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"size": 1}, "at least 2"), ({"distance": "mdm"}, "did you mean 'mmd'"), ({"weight": -1}, "at least 0")],
)
def test_a_wrong_option_stops_before_training(options: dict[str, Any], reason: str, quick: Quick) -> None:
    with pytest.raises(UserError, match=reason):
        prepare(quick("reference_alignment", options))


NEUTRAL = "dynamic_prototypes:counts=0,confidence=0,unseen=1"


def test_neutral_powers_are_the_mean_of_fafi(quick: Quick, finished: FinishedRun) -> None:
    fafi, neutral = finished(quick("fafi")), finished(quick("dynamic_prototypes", fusion=NEUTRAL))
    assert neutral.uploads == fafi.uploads
    assert neutral.record.curve == fafi.record.curve


def test_dynamic_prototypes_send_one_number_a_class_more(quick: Quick, finished: FinishedRun) -> None:
    dynamic = finished(quick("dynamic_prototypes"))
    plain = finished(quick("dynamic_prototypes", fusion=NEUTRAL))
    assert dynamic.uploads != plain.uploads and dynamic.record.final.fusion == "dynamic_prototypes"
    more = [b.upload_bytes - a.upload_bytes for a, b in zip(plain.record.clients, dynamic.record.clients, strict=True)]
    assert all(40 < bytes_more < 200 for bytes_more in more)  # ten floats and their entry in the table


def test_reliability_asks_for_held_out_images_before_training(quick: Quick, finished: FinishedRun) -> None:
    rule = "dynamic_prototypes:reliability=1"
    with pytest.raises(UserError, match="add --validation"):
        prepare(quick("dynamic_prototypes", fusion=rule))
    with_some = finished(quick("dynamic_prototypes", fusion=rule, validation=0.2, epochs=1))
    assert 0 <= with_some.record.final.accuracy <= 1
