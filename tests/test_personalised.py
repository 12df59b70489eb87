"""Personalised accuracy: how good the model that a client ends up with is on the classes that it holds."""

from collections.abc import Callable
from typing import Any

import pytest

from fedshot.data.dataset import Dataset
from fedshot.evaluate import evaluate_with_members
from fedshot.fusion import make_fusion
from fedshot.prepare import prepare
from fedshot.record import Record
from fedshot.server import receive
from fedshot.spec import Spec

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]


def by_hand(record: Record, client: int) -> float:
    """Of the model that the client trained, from what the record says about each class."""
    counts, shares = record.partition["class_counts"][client], record.clients[client].per_class_alone
    assert shares is not None
    return sum(n / sum(counts) * (share or 0.0) for n, share in zip(counts, shares, strict=True))


@pytest.mark.parametrize("rule", ["features", "average"])
def test_it_is_that_of_the_clients_own_model(rule: str, quick: Quick, finished: FinishedRun) -> None:
    record = finished(quick("fafi", fusion=rule)).record
    expected = [by_hand(record, client) for client in range(3)]
    assert [client.personalised_accuracy for client in record.clients] == pytest.approx(expected)
    assert record.final.personalised_accuracy == pytest.approx(sum(expected) / 3)


def test_a_shared_base_counts_in_the_model_that_a_client_ends_up_with(
    quick: Quick, finished: FinishedRun, digits: Dataset
) -> None:
    done, setting = finished(quick("fafi")), prepare(quick("fafi"))
    members, test = receive(setting, done.folder, ("weights",)).members, digits.test
    predictor = make_fusion("shared_base:shared=3").fuse(members, setting.task)
    _, alone = evaluate_with_members(predictor, members, test, setting.task)
    assert predictor.personal is not None
    for k, model in enumerate(predictor.personal):
        counts = members[k].upload.header.class_counts
        right = model(setting.task.prepare(test.images)).argmax(1) == test.labels
        expected = sum(n / sum(counts) * right[test.labels == c].double().mean().item() for c, n in enumerate(counts))
        assert alone.personalised[k] == pytest.approx(expected, abs=1e-9)
    own = [client.personalised_accuracy for client in done.record.clients]
    assert list(alone.personalised) != own
    assert alone.accuracies == tuple(client.accuracy_alone for client in done.record.clients)  # alone stays alone


def test_a_record_without_it_can_be_read(quick: Quick, finished: FinishedRun) -> None:
    record = finished(quick("fafi")).record
    content = record.model_dump(mode="json")
    del content["final"]["personalised_accuracy"]
    for client in content["clients"]:
        del client["personalised_accuracy"]
    assert Record.model_validate(content).final.personalised_accuracy is None


def test_a_client_that_was_skipped_has_none(quick: Quick, divided: Callable[..., str]) -> None:
    from fedshot.experiment import run

    record = run(quick("fafi", epochs=1, partition_file=divided((12, (0, 1)), (1, (2,)), (12, (3, 4)))))
    assert record.clients[1].personalised_accuracy is None
    assert record.final.personalised_accuracy == pytest.approx((by_hand(record, 0) + by_hand(record, 2)) / 2)
