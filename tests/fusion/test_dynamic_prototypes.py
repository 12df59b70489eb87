"""Prototypes weighted row by row: the weights against a naive loop, who votes, and what the server refuses."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedshot.departure import make_upload
from fedshot.errors import UploadRefused, UserError
from fedshot.fusion import Member, make_fusion
from fedshot.fusion.average import weighted_head
from fedshot.fusion.weights import class_counts, reliability, row_votes, samples, uniform
from fedshot.local.anchors import anchors
from fedshot.local.confidence import class_confidence
from fedshot.local.statistics import evidence_of, statistics
from fedshot.local.work import upload_of
from fedshot.models import Classifier, EtfHead, PrototypeHead, build
from fedshot.prepare import prepare
from fedshot.sections import STATISTICS
from fedshot.server import Reception, lacking_section
from fedshot.setting import Setting
from fedshot.spec import Spec
from fedshot.task import Task
from fedshot.upload import Header

COUNTS = ((30, 0, 5, 0, 7), (10, 20, 5, 0, 0), (1, 0, 90, 0, 2))  # nobody holds class 3
SURE = ((0.9, 0.0, 0.4, 0.0, 0.6), (0.3, 0.8, 0.5, 0.0, 0.0), (0.7, 0.0, 1.0, 0.0, 0.1))
SCORES = (0.9, 0.3, 0.6)


@pytest.fixture(scope="module")
def models(task: Task) -> list[Classifier]:
    return [build(replace(task, classes=5, seed=k), PrototypeHead).eval().requires_grad_(False) for k in range(3)]


@pytest.fixture(scope="module")
def members(models: list[Classifier]) -> list[Member]:
    return [make_member(k, models[k], SCORES[k]) for k in range(3)]


def make_member(k: int, model: Classifier, score: float | None) -> Member:
    header = Header(client=k, samples=sum(COUNTS[k]), class_counts=COUNTS[k], method="fafi", validation_accuracy=score)
    sure = {"confidence": torch.tensor(SURE[k])}
    return Member(make_upload(header, {"weights": model.state_dict(), "class_confidence": sure}), lambda: model)


def naive(powers: tuple[float, float, float, float], unseen: bool) -> list[list[float]]:
    by_samples, by_counts, by_reliability, by_confidence = powers
    rows = [[0.0] * 5 for _ in range(3)]
    for c in range(5):
        votes = []
        for k in range(3):
            vote = sum(COUNTS[k]) ** by_samples * COUNTS[k][c] ** by_counts
            vote *= SCORES[k] ** by_reliability * SURE[k][c] ** by_confidence
            votes.append(vote if unseen or COUNTS[k][c] > 0 else 0.0)
        for k in range(3):
            rows[k][c] = votes[k] / sum(votes) if sum(votes) > 0 else 1 / 3
    return rows


@pytest.mark.parametrize("unseen", [False, True])
@pytest.mark.parametrize("powers", [*itertools.product((0.0, 1.0), repeat=4), (0.5, 2.0, 0.5, 3.0)])
def test_votes_are_their_formula(
    powers: tuple[float, float, float, float], unseen: bool, members: list[Member]
) -> None:
    found = row_votes(members, *powers, unseen=unseen)
    torch.testing.assert_close(found, torch.tensor(naive(powers, unseen)), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(found.sum(0), torch.ones(5))


def test_votes_contain_the_simpler_weights(members: list[Member]) -> None:
    assert torch.equal(row_votes(members, 0, 0, 0, 0, unseen=True), uniform(members)[:, None].expand(3, 5))
    torch.testing.assert_close(row_votes(members, 1, 0, 0, 0, unseen=True)[:, 0], samples(members))
    torch.testing.assert_close(row_votes(members, 0, 0, 1, 0, unseen=True)[:, 0], reliability(members))
    torch.testing.assert_close(row_votes(members, 0, 1, 0, 0, unseen=False), class_counts(members))


def test_neutral_powers_give_the_predictions_of_features_bit_for_bit(members: list[Member], task: Task) -> None:
    images = torch.rand(20, *task.shape, generator=torch.Generator().manual_seed(1))
    rules = ("features", "dynamic_prototypes:counts=0,confidence=0,unseen=true")
    first, second = (make_fusion(rule).fuse(members, task)(images) for rule in rules)
    assert torch.equal(first, second)


def test_a_class_that_a_client_never_saw_is_not_its_to_vote_on(members: list[Member], models: list[Classifier]) -> None:
    head = weighted_head(members, row_votes(members, 0, 1, 0, 1, unseen=False))
    rows = [model.head.state_dict()["prototypes"] for model in models]
    found = head.state_dict()["prototypes"]
    assert torch.equal(found[1], rows[1][1])  # only client 1 holds class 1
    torch.testing.assert_close(found[3], (rows[0][3] + rows[1][3] + rows[2][3]) / 3)  # nobody holds class 3
    torch.testing.assert_close(found[4], (4.2 * rows[0][4] + 0.2 * rows[2][4]) / 4.4)


def test_who_is_surer_counts_more(members: list[Member]) -> None:
    plain, sharp = (row_votes(members, 0, 1, 0, power, unseen=False) for power in (0.0, 4.0))
    assert sharp[0, 0] > plain[0, 0] and sharp[1, 0] < plain[1, 0]


def test_large_counts_and_powers_stay_finite(members: list[Member]) -> None:
    found = row_votes(members, 200, 300, 0, 50, unseen=False)
    assert found.isfinite().all() and found[:, 0].tolist() == pytest.approx([1, 0, 0], abs=1e-6)


def test_a_client_that_held_nothing_back_has_no_say_in_reliability(models: list[Classifier]) -> None:
    some = [make_member(0, models[0], None), make_member(1, models[1], 0.5)]
    assert row_votes(some, 0, 0, 1, 0, unseen=True)[0].tolist() == [0] * 5
    none = [make_member(k, models[k], None) for k in range(2)]
    with pytest.raises(UserError, match="train with --validation"):
        row_votes(none, 0, 0, 1, 0, unseen=True)


@pytest.mark.parametrize(
    ("text", "needs", "held_out"),
    [
        ("dynamic_prototypes", ("weights", "class_confidence"), False),
        ("dynamic_prototypes:confidence=0", ("weights",), False),
        ("dynamic_prototypes:reliability=0.5", ("weights", "class_confidence"), True),
    ],
)
def test_a_rule_asks_for_what_its_powers_read(text: str, needs: tuple[str, ...], held_out: bool) -> None:
    rule = make_fusion(text)
    assert (rule.needs, rule.held_out) == (needs, held_out)


def test_a_head_without_class_rows_is_refused_before_training(task: Task) -> None:
    etf = anchors("etf", 10, 10, 1).T
    with pytest.raises(UserError, match="one row for each class"):
        make_fusion("dynamic_prototypes").check(build(task, lambda width, classes: EtfHead(width, etf)))


def test_confidence_is_its_formula() -> None:
    draw = torch.Generator().manual_seed(2)
    logits = torch.randn(30, 5, generator=draw)
    labels = torch.randint(3, (30,), generator=draw)  # no image of classes 3 and 4
    held = torch.tensor([True, True, False, True, False])
    own = [math.exp(row[y]) / sum(map(math.exp, row)) for row, y in zip(logits.tolist(), labels.tolist(), strict=True)]
    expected = []
    for c in range(5):
        mine = [p for p, y in zip(own, labels.tolist(), strict=True) if y == c] or own
        expected.append(sum(mine) / len(mine) if held[c] else 0.0)
    torch.testing.assert_close(class_confidence(logits, labels, held), torch.tensor(expected))


def test_certainty_does_not_round_above_1() -> None:
    certain = torch.eye(3)[torch.arange(3).repeat(1000)] * 100
    assert class_confidence(certain, torch.arange(3).repeat(1000), torch.ones(3, dtype=torch.bool)).max() <= 1


@pytest.fixture(scope="module")
def setting(quick: Callable[..., Spec]) -> Setting:
    return prepare(quick("dynamic_prototypes", validation=0.3))


def confidence_of(setting: Setting, validation: bool) -> tuple[Tensor, Tensor]:
    """What client 0 sends, and what the definition says, on held-out images or on those of training."""
    client = setting.client(0)
    assert not isinstance(client, str) and client.validation is not None
    model = client.model.eval().requires_grad_(False)
    images = client.validation if validation else client.train
    asked = client if validation else replace(client, validation=None)
    evidence = evidence_of(asked, model, setting.sizes)
    sent = statistics(evidence, {"class_confidence": STATISTICS["class_confidence"]})
    logits = model(client.task.prepare(images.images))
    expected = class_confidence(logits, images.labels, torch.tensor(client.class_counts) > 0)
    return sent["class_confidence"]["confidence"], expected


@pytest.mark.parametrize("validation", [True, False])
def test_confidence_is_measured_on_held_out_images_where_there_are_some(setting: Setting, validation: bool) -> None:
    found, expected = confidence_of(setting, validation)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(found, confidence_of(setting, not validation)[0])


def test_the_server_refuses_confidence_that_cannot_be(
    setting: Setting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    client, file = setting.client(2), tmp_path_factory.mktemp("uploads") / "upload"
    assert not isinstance(client, str)
    good = upload_of(setting, client, client.model, ("class_confidence",))
    rule = make_fusion("dynamic_prototypes")

    def admit(change: dict[str, Tensor] | None) -> Member:
        tensors = {name: t for name, t in good.tensors.items() if change is not None or name.startswith("weights/")}
        file.write_bytes(replace(good, tensors={**tensors, **(change or {})}).to_bytes())
        return Reception(setting, rule.needs).admit(file, 2)

    admit({})
    sure = good.section("class_confidence")["confidence"]
    elsewhere = sure.clone()
    elsewhere[0] = 0.5  # client 2 holds classes 1 and 8
    for change, reason in (
        (None, "section class_confidence is missing"),
        ({"class_confidence/confidence": sure + 1}, "not between 0 and 1"),
        ({"class_confidence/confidence": elsewhere}, "a class that the client does not hold"),
        ({"class_confidence/confidence": sure[:4]}, "shape"),
    ):
        with pytest.raises(UploadRefused, match=reason):
            admit(change)


def test_fusing_old_uploads_says_what_they_lack(members: list[Member]) -> None:
    old = [Member(m.upload.only(("weights",)), m.load) for m in members]
    assert lacking_section(old, make_fusion("dynamic_prototypes")) == "the uploads carry no class_confidence"
    assert lacking_section(old, make_fusion("dynamic_prototypes:confidence=0")) is None


def test_unseen_votes_that_could_not_count_are_refused() -> None:
    with pytest.raises(UserError, match="add counts=0 and confidence=0"):
        make_fusion("dynamic_prototypes:unseen=true")
    assert make_fusion("dynamic_prototypes:unseen=true,counts=0,confidence=0").name == "dynamic_prototypes"
