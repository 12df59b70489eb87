"""What the learned lambdas do in real runs, read from telemetry: the claims of the research notes, measured.

V12 attenuates the data term and lambda explodes; V14 attenuates the prior and lambda decays; V11 anneals from outside
and the learned lambda takes it back.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from fedshot.spec import Spec

EPOCHS = 30
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rows_of(
    quick: Callable[..., Spec], divided: Callable[..., str], finished: Callable[[Spec], Any]
) -> Callable[[str], Rows]:
    """Telemetry of the client with many steps (15 an epoch) in a run of a method; the other client has one an epoch."""
    file = divided((450, range(6)), (32, range(6, 10)))

    def get(method: str) -> Rows:
        settings = {"clients": 2, "partition_file": file, "epochs": EPOCHS, "batch_size": 32, "evaluate_at": ()}
        return finished(quick(method, **settings)).rows(0)

    return get


def test_lambda_of_v12_explodes(rows_of: Callable[[str], Rows]) -> None:
    rows = rows_of("V12")
    values = [row["lambda_effective"] for row in rows]
    assert values[-1] > 10 * min(values)
    assert values[-1] > 5 * values[0]
    assert all(late > early for early, late in pairwise(values[EPOCHS // 2 :]))
    # it runs after an equilibrium that leaves it behind
    assert rows[-1]["lambda_equilibrium"] > 100 * values[-1]


def test_lambda_of_v14_decays(rows_of: Callable[[str], Rows]) -> None:
    values = [row["lambda_effective"] for row in rows_of("V14")]
    assert values[-1] < values[0] / 5
    assert all(late < early for early, late in pairwise(values[EPOCHS // 2 :]))


def test_v11_takes_its_annealing_back(rows_of: Callable[[str], Rows]) -> None:
    middle = [row for row in rows_of("V11") if 0.25 * EPOCHS <= row["epoch"] <= 0.85 * EPOCHS]
    raw = [row["lambda_raw"] for row in middle]
    used = [row["attenuation"] * row["lambda_raw"] for row in middle]
    assert raw[-1] > 3 * raw[0]
    assert max(used) / min(used) < 4 / 3
    assert used == pytest.approx([row["lambda_effective"] for row in middle], rel=1e-5)
    assert middle[0]["attenuation"] > 4 * middle[-1]["attenuation"]


def test_a_lambda_that_can_keep_up_is_where_its_equilibrium_says(rows_of: Callable[[str], Rows]) -> None:
    # V11's sigmas are learned sigma_local^2 times faster than the others', fast enough to follow the losses
    for row in rows_of("V11"):
        if 0.25 * EPOCHS <= row["epoch"] <= 0.85 * EPOCHS:
            assert row["lambda_raw"] == pytest.approx(row["lambda_equilibrium"], rel=0.35)


def test_before_attenuation_bites_v12_and_v14_are_alike(rows_of: Callable[[str], Rows]) -> None:
    for v12, v14 in zip(rows_of("V12")[:4], rows_of("V14")[:4], strict=True):
        assert v12["lambda_raw"] == pytest.approx(v14["lambda_raw"], rel=0.05)
