"""Adaptive base–head splitting: who decides the split, what the proximal term holds, and what the record says."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fedshot.experiment import run
from fedshot.fusion.split import stages_of_alike, stages_of_one
from fedshot.method import Client
from fedshot.prepare import prepare
from fedshot.spec import Spec
from fedshot.upload import parse

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]
METHODS = ("split_announced", "split_local")
STAGES = 5  # of the CNN for 8x8 images


def weights(found: Any, client: int) -> dict[str, torch.Tensor]:
    return parse(found.folder.upload(client).read_bytes()).section("weights")


def moved(found: Any, client: int, names: Sequence[str]) -> float:
    """How far those entries of a client's encoder are from the start."""
    start = prepare(found.record.spec).initial_model.state_dict()
    end = weights(found, client)
    return sum(float((end[f"encoder.{n}"] - start[f"encoder.{n}"]).double().square().sum()) for n in names) ** 0.5


def trained(encoder: torch.nn.Module, names: Sequence[str]) -> list[str]:
    return [name for name, _ in encoder.named_parameters() if name in names]


@pytest.mark.parametrize("name", METHODS)
def test_no_pull_to_the_start_is_fafi(name: str, quick: Quick, finished: FinishedRun) -> None:
    neutral, parent = finished(quick(name, {"mu": 0})), finished(quick("fafi"))
    assert neutral.uploads == parent.uploads
    assert finished(quick(name)).uploads != parent.uploads
    plain = finished(quick(name, {"mu": 0}, fusion="features"))
    assert plain.record.curve == parent.record.curve


def test_the_server_decides_once_from_what_clients_announce(quick: Quick, finished: FinishedRun) -> None:
    found = finished(quick("split_announced"))
    shared = stages_of_alike(torch.tensor(found.record.partition["class_counts"]), STAGES)
    assert 0 < shared < STAGES
    assert int(found.folder.read_job(torch.device("cpu"))["shared"]) == shared
    assert found.record.final.phases == 2
    assert found.record.cost.announced_bytes > 0 and found.record.cost.job_bytes > 0
    assert found.record.cost.models_kept == 3
    by_hand = finished(quick("split_announced", fusion=f"shared_base:shared={shared}"))
    assert by_hand.uploads == found.uploads and by_hand.record.curve == found.record.curve


def test_a_client_decides_alone(quick: Quick) -> None:
    setting = prepare(quick("split_local"))
    client = setting.client(0)
    assert isinstance(client, Client)
    stages = stages_of_one(client.class_counts, STAGES)
    names = [term.name for term in setting.method.objective(client).base]
    assert stages == 4 and names[-1] == "proximal"
    assert setting.method.phases == 1 and setting.method.broadcast is None


def test_a_client_of_one_class_shares_nothing(quick: Quick, divided: Callable[..., str]) -> None:
    file = divided((20, range(6)), (17, (3,)), (20, range(4, 10)))
    record = run(quick("split_local", partition_file=file))
    plain = run(quick("split_local", partition_file=file, fusion="features"))
    assert record.curve == plain.curve  # the least of all is 0


@pytest.mark.parametrize("name", METHODS)
def test_the_pull_holds_the_base_and_leaves_the_rest(name: str, quick: Quick, finished: FinishedRun) -> None:
    strong, parent = finished(quick(name, {"mu": 100.0})), finished(quick("fafi"))
    encoder = prepare(quick(name)).initial_model.encoder
    counts = strong.record.partition["class_counts"]
    decided = {
        "split_announced": stages_of_alike(torch.tensor(counts), STAGES),
        "split_local": stages_of_one(counts[0], STAGES),
    }
    base = trained(encoder, encoder.entries(decided[name]))
    rest = [n for n in trained(encoder, encoder.entries(STAGES)) if n not in base]
    assert moved(strong, 0, base) < 0.5 * moved(parent, 0, base)
    assert moved(strong, 0, rest) > 0.5 * moved(parent, 0, rest)
    assert all(row["loss_proximal"] > 0 for row in strong.rows(0))


def test_what_an_upload_says_does_not_hang_on_the_other_clients(
    quick: Quick, finished: FinishedRun, divided: Callable[..., str]
) -> None:
    """Form (ii) is one shot: another second client leaves the first one's upload as it was."""
    other = run(quick("split_local", partition_file=divided((40, range(6)), (20, (9,)), (17, (1, 8)))))
    assert other.clients[0].upload_sha256 == finished(quick("split_local")).uploads[0]
    assert not finished(quick("split_local")).folder.job.exists()
