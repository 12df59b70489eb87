"""FAFI with hard negatives, and FAFI that favours no class: every option does something of its own."""

from collections.abc import Callable
from typing import Any

import pytest

from fedshot.errors import UserError
from fedshot.method import Client
from fedshot.methods.balanced_contrast import _seen
from fedshot.prepare import prepare
from fedshot.spec import Spec

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]

NEUTRAL = {"contrast": "plain", "sampling": "shuffled", "tau": 0}
BALANCED: dict[str, dict[str, Any]] = {
    "contrast": {**NEUTRAL, "contrast": "balanced"},
    "sampling": {**NEUTRAL, "sampling": "balanced"},
    "classifier": {**NEUTRAL, "tau": 1},
    "a weaker classifier": {**NEUTRAL, "tau": 0.5},
    "all": {},
}
HARD: dict[str, dict[str, Any]] = {
    "weighed": {"beta": 1, "synthetic": 0},
    "mixed": {"beta": 0, "synthetic": 4},
    "more than there are": {"beta": 0, "synthetic": 1000},
    "both": {},
}


@pytest.mark.parametrize(("method", "parts"), [("balanced_contrast", BALANCED), ("hard_negatives", HARD)])
def test_every_part_moves_the_upload(method: str, parts: Any, quick: Quick, finished: FinishedRun) -> None:
    uploads = {finished(quick(method, options)).uploads[0] for options in parts.values()}
    assert len(uploads) == len(parts)
    assert finished(quick("fafi")).uploads[0] not in uploads


def test_hard_negatives_make_contrast_harder(quick: Quick, finished: FinishedRun) -> None:
    plain, weighed, mixed = (
        finished(quick("hard_negatives", options)).rows(2)[0]["loss_contrast"]
        for options in ({"beta": 0, "synthetic": 0}, HARD["weighed"], HARD["mixed"])
    )
    assert plain < weighed and plain < mixed  # the first epoch of this client is one step of the shared start


def test_one_class_has_no_negatives_and_trains_as_fafi_does(
    quick: Quick, finished: FinishedRun, divided: Callable[..., str]
) -> None:
    alone = {"partition_file": divided((20, [3]), (30, range(5))), "clients": 2}
    hard = finished(quick("hard_negatives", **alone)).rows(0)
    fafi = finished(quick("fafi", **alone)).rows(0)
    assert [row["loss_contrast"] for row in hard] == pytest.approx([row["loss_contrast"] for row in fafi], rel=1e-3)
    assert len(finished(quick("balanced_contrast", **alone)).rows(0)) == 2


def test_the_prior_is_that_of_the_images_shown(quick: Quick) -> None:
    client = prepare(quick("balanced_contrast")).client(1)  # 33 images of the classes 4 to 9
    assert isinstance(client, Client)
    assert _seen(client, "shuffled").tolist() == list(client.class_counts)
    assert _seen(client, "balanced").tolist() == [0, 0, 0, 0] + 6 * [5.5]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("hard_negatives", {"beta": -1}),
        ("hard_negatives", {"synthetic": -1}),
        ("hard_negatives", {"synthetic": 1.5}),
        ("balanced_contrast", {"tau": -0.1}),
        ("balanced_contrast", {"contrast": "balancd"}),
        ("balanced_contrast", {"sampling": "none"}),
    ],
)
def test_a_bad_option_stops_before_training(method: str, options: dict[str, Any], quick: Quick) -> None:
    with pytest.raises(UserError, match=f"{next(iter(options))} takes"):
        prepare(quick(method, options))
