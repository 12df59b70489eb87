"""A shared base with K personal models: what is averaged, what stays apart, and that the base runs once."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedshot.data.dataset import Dataset
from fedshot.departure import make_upload
from fedshot.errors import UserError
from fedshot.evaluate import evaluate_with_members, score
from fedshot.fusion import Member, make_fusion
from fedshot.fusion.memory import ASKED_BYTES
from fedshot.fusion.split import VOTES, label_similarity, stages_of_alike, stages_of_one
from fedshot.models import LinearHead, PrototypeHead, build
from fedshot.models.copies import frozen_copy
from fedshot.models.split import Base
from fedshot.prepare import prepare
from fedshot.server import fuse_again
from fedshot.spec import Spec
from fedshot.task import Task
from fedshot.upload import Header

COUNTS = ((9, 9, 9, 3, 0, 0, 0, 0, 0, 0), (0, 0, 5, 5, 5, 5, 0, 0, 0, 0), (0, 0, 0, 0, 0, 4, 4, 1, 1, 0))
STAGES = 5  # of the CNN for 8x8 images


def members_of(task: Task, head: Callable[[int, int], torch.nn.Module] = PrototypeHead) -> list[Member]:
    """Three untrained clients whose BatchNorm has seen something else each."""
    found = []
    for number, counts in enumerate(COUNTS):
        model = build(replace(task, seed=20 + number), head).train()
        with torch.no_grad():
            model(torch.randn(16, *task.shape, generator=torch.Generator().manual_seed(number)))
        model.eval().requires_grad_(False)
        header = Header(client=number, samples=sum(counts), class_counts=counts, method="fafi")
        upload = make_upload(header, {"weights": model.state_dict()})
        found.append(Member(upload, lambda model=model: model))  # type: ignore[misc]
    return found


@pytest.fixture(scope="module")
def members(task: Task) -> list[Member]:
    return members_of(task)


@pytest.fixture(scope="module")
def images(digits: Dataset, task: Task) -> Tensor:
    return task.prepare(digits.test.images[:40])


def with_mean_base(members: Sequence[Member], stages: int) -> list[Member]:
    """The members with the first stages averaged entry by entry, in double precision, as whole models of their own."""
    total = sum(m.upload.header.samples for m in members)
    names = members[0].model.encoder.entries(stages)
    made = []
    for member in members:
        state = {name: tensor.clone() for name, tensor in member.model.state_dict().items()}
        for name in (f"encoder.{entry}" for entry in names):
            if state[name].is_floating_point():
                parts = [m.upload.header.samples / total * m.model.state_dict()[name].double() for m in members]
                state[name] = sum(parts, torch.zeros(())).float()
        model = frozen_copy(member.model)
        model.load_state_dict(state)
        made.append(Member(member.upload, lambda model=model: model))  # type: ignore[misc]
    return made


@pytest.mark.parametrize("vote", VOTES)
@pytest.mark.parametrize("stages", [1, 3, STAGES])
def test_the_first_stages_are_the_mean_and_the_rest_is_personal(
    vote: str, stages: int, members: list[Member], images: Tensor, task: Task
) -> None:
    found = make_fusion(f"shared_base:shared={stages},vote={vote}").fuse(members, task)
    expected = make_fusion(vote).fuse(with_mean_base(members, stages), task)
    torch.testing.assert_close(found(images), expected(images), rtol=1e-4, atol=1e-5)
    assert len(found.models) == 3
    assert not torch.allclose(found(images), make_fusion(vote).fuse(members, task)(images), atol=1e-3)


@pytest.mark.parametrize("vote", VOTES)
def test_nothing_shared_is_the_plain_vote(vote: str, members: list[Member], images: Tensor, task: Task) -> None:
    found = make_fusion(f"shared_base:shared=0,vote={vote}").fuse(members, task)
    assert torch.equal(found(images), make_fusion(vote).fuse(members, task)(images))


def test_everything_shared_with_linear_heads_is_the_average(images: Tensor, task: Task) -> None:
    linear = members_of(task, LinearHead)
    found = make_fusion(f"shared_base:shared={STAGES},vote=logits").fuse(linear, task)
    torch.testing.assert_close(found(images), make_fusion("average").fuse(linear, task)(images), rtol=1e-4, atol=1e-5)


def test_the_members_stay_as_they_were(members: list[Member], task: Task) -> None:
    before = [{name: t.clone() for name, t in m.model.state_dict().items()} for m in members]
    make_fusion("shared_base:shared=2").fuse(members, task)
    for member, state in zip(members, before, strict=True):
        assert all(torch.equal(t, state[name]) for name, t in member.model.state_dict().items())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images each call of a base was about."""
    calls: list[int] = []
    forward = Base.forward

    def counted(self: Base, images: Tensor) -> Tensor:
        calls.append(len(images))
        return forward(self, images)

    monkeypatch.setattr(Base, "forward", counted)
    return calls


def test_the_base_runs_once_for_all_models(
    asked: list[int], members: list[Member], images: Tensor, digits: Dataset, task: Task
) -> None:
    predictor = make_fusion("shared_base:shared=3").fuse(members, task)
    predictor(images)
    assert asked == [40]
    asked.clear()
    evaluate_with_members(predictor, members, digits.test, task)
    assert asked == [1, 360]  # one image to see how large its answer is


def test_what_the_base_made_counts_as_memory(
    asked: list[int], members: list[Member], digits: Dataset, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group holds the base's maps of its images, not those of all images."""
    predictor = make_fusion("shared_base:shared=1").fuse(members, task)
    whole = score({"split": predictor}, digits.test, task)["split"]
    made = 4 * (32 * 8 * 8 + 3 * (512 + 10) + 64)  # bytes for each image
    monkeypatch.setitem(ASKED_BYTES, "cpu", 100 * made)
    asked.clear()
    parts = score({"split": predictor}, digits.test, task)["split"]
    assert asked == [1, 100, 100, 100, 60]
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-4)


def test_the_class_counts_settle_the_split(members: list[Member], images: Tensor, task: Task) -> None:
    alike = stages_of_alike(torch.tensor(COUNTS), STAGES)
    least = min(stages_of_one(counts, STAGES) for counts in COUNTS)
    assert 0 < alike < least < STAGES
    for asked, number in (("similarity", alike), ("least", least)):
        found = make_fusion(f"shared_base:shared={asked}").fuse(members, task)
        assert torch.equal(found(images), make_fusion(f"shared_base:shared={number}").fuse(members, task)(images))


def entropy(p: Sequence[float]) -> float:
    return -sum(x * math.log2(x) for x in p if x > 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 40), min_size=4, max_size=4), min_size=2, max_size=5))
def test_similarity_is_the_mean_over_pairs(counts: list[list[int]]) -> None:
    counts = [row for row in counts if sum(row) >= 2]
    distributions = [[n / sum(row) for n in row] for row in counts]
    alike = []
    for p, q in itertools.combinations(distributions, 2):
        middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
        alike.append(1 - (entropy(middle) - (entropy(p) + entropy(q)) / 2))
    expected = sum(alike) / len(alike) if alike else 1.0
    table = torch.tensor([*counts, [1, 0, 0, 0]])  # who cannot train has no say
    assert label_similarity(table) == pytest.approx(expected, abs=1e-9)
    assert label_similarity(10 * table[:-1]) == pytest.approx(expected, abs=1e-9)
    assert 0 <= stages_of_alike(table, 7) <= 7


def test_the_split_goes_from_nothing_to_everything() -> None:
    mixed = [torch.tensor([[10 - n, n], [n, 10 - n]]) for n in range(6)]  # from disjoint to identical
    shared = [stages_of_alike(counts, 9) for counts in mixed]
    assert shared == sorted(shared) and shared[0] == 0 and shared[-1] == 9
    alone = [stages_of_one((10 - n, n), 9) for n in range(6)]
    assert alone == sorted(alone) and alone[0] == 0 and alone[-1] == 9
    assert stages_of_one((5,), 9) == 9  # with one class all clients are alike


def test_a_split_that_the_encoder_does_not_have_is_refused_before_training(quick: Callable[..., Spec]) -> None:
    spec = quick("fafi", fusion="shared_base:shared=6")
    with pytest.raises(UserError, match="6 stages cannot be shared, the encoder has 5: choose shared=0 to 5"):
        prepare(spec).rehearse()
    prepare(quick("fafi", fusion="shared_base:shared=5")).rehearse()
    for wrong in ("shared=-1", "shared=most", "shared=1.5", "vote=average"):
        with pytest.raises(UserError, match="shared_base"):
            make_fusion(f"shared_base:{wrong}")


def test_a_finished_run_can_be_split_afterwards(quick: Callable[..., Spec], finished: Callable[[Spec], Any]) -> None:
    done = finished(quick("fafi"))
    rules = ["shared_base:shared=0", "features", "shared_base:shared=2", "shared_base:shared=9"]
    rows = {row["fusion"]: row for row in fuse_again(prepare(quick("fafi")), done.folder, rules)}
    assert rows["shared_base:shared=0"]["nll"] == rows["features"]["nll"] != rows["shared_base:shared=2"]["nll"]
    assert "the encoder has 5" in rows["shared_base:shared=9"]["error"]
