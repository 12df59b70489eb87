"""One model from many: known answers of averaging."""

from dataclasses import replace

import pytest
import torch

from fedshot.data.dataset import Dataset
from fedshot.departure import make_upload
from fedshot.errors import UserError
from fedshot.fusion import Member, make_fusion
from fedshot.fusion.average import average_states, mean_head
from fedshot.fusion.weights import samples, sqrt_samples, uniform
from fedshot.local.anchors import anchors
from fedshot.models import Classifier, DualHead, EtfHead, LinearHead, PrototypeHead, build
from fedshot.task import Task
from fedshot.upload import Header


def lived(task: Task, digits: Dataset, seed: int, head: type = PrototypeHead) -> Classifier:
    """A model whose BatchNorm has seen images."""
    model = build(replace(task, seed=seed), head)
    model.train()
    with torch.no_grad():
        for start in range(0, 160, 32):
            model(task.prepare(digits.train.images[seed * 40 + start :][:32]))
    return model.eval().requires_grad_(False)


def member(model: Classifier, counts: tuple[int, ...], accuracy: float | None = None, client: int = 0) -> Member:
    header = Header(client=client, samples=sum(counts), class_counts=counts, method="x", validation_accuracy=accuracy)
    return Member(make_upload(header, {"weights": model.state_dict()}), lambda: model)


def ten(*first: int) -> tuple[int, ...]:
    """Class counts of ten classes."""
    return (*first, *[0] * (10 - len(first)))


@pytest.mark.parametrize("name", ["average", "otfusion"])
def test_fusing_one_model_with_itself_is_that_model(name: str, task: Task, digits: Dataset) -> None:
    model = lived(task, digits, 1)
    members = [member(model, ten(n), client=k) for k, n in enumerate((5, 70, 11))]
    predictor = make_fusion(name).fuse(members, task)
    (fused,) = predictor.models
    assert fused is not model
    for entry, tensor in model.state_dict().items():
        torch.testing.assert_close(fused.state_dict()[entry], tensor, rtol=1e-6, atol=1e-6)
    images = task.prepare(digits.test.images[:50])
    torch.testing.assert_close(predictor(images), model(images), rtol=1e-5, atol=1e-5)


def test_parameters_and_batchnorm_buffers_are_averaged_by_samples(task: Task, digits: Dataset) -> None:
    one, two = lived(task, digits, 1), lived(task, digits, 2)
    (fused,) = make_fusion("average").fuse([member(one, ten(30)), member(two, ten(10), client=1)], task).models
    first, second, found = one.state_dict(), two.state_dict(), fused.state_dict()
    buffers = [name for name in found if "running" in name]
    assert buffers and any(not torch.equal(first[name], second[name]) for name in buffers)
    for name, tensor in found.items():
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor, 0.75 * first[name] + 0.25 * second[name], rtol=1e-5, atol=1e-6)
        else:
            assert torch.equal(tensor, torch.maximum(first[name], second[name]))
    assert not fused.training


def test_averaging_leaves_its_inputs_alone() -> None:
    states = [{"w": torch.ones(2)}, {"w": torch.zeros(2)}]
    mean = average_states(states, torch.tensor([0.5, 0.5]))
    mean["w"].add_(5)
    assert states[0]["w"].tolist() == [1, 1] and states[1]["w"].tolist() == [0, 0]


def test_client_weights_are_their_formulas(task: Task, digits: Dataset) -> None:
    model = lived(task, digits, 1)
    members = [member(model, ten(4)), member(model, ten(16)), member(model, ten(80))]
    torch.testing.assert_close(samples(members), torch.tensor([0.04, 0.16, 0.80]))
    torch.testing.assert_close(sqrt_samples(members), torch.tensor([2.0, 4.0, 80**0.5]) / (6 + 80**0.5))
    torch.testing.assert_close(uniform(members), torch.full((3,), 1 / 3))


def rows(members: list[Member], by: str) -> torch.Tensor:
    head = mean_head(members, by)  # type: ignore[arg-type]
    assert isinstance(head, PrototypeHead)
    return head.prototypes.detach()


def test_mean_prototypes_by_every_weight(task: Task, digits: Dataset) -> None:
    one, two = lived(task, digits, 1), lived(task, digits, 2)
    members = [member(one, ten(30, 0, 5, 0), 0.9), member(two, ten(10, 20, 5, 0), 0.3, client=1)]
    p, q = one.head.prototypes, two.head.prototypes
    torch.testing.assert_close(rows(members, "uniform"), (p + q) / 2)
    torch.testing.assert_close(rows(members, "samples"), 0.5 * p + 0.5 * q)  # 35 samples each
    torch.testing.assert_close(rows(members, "reliability"), 0.75 * p + 0.25 * q)
    by_class = rows(members, "class_counts")
    torch.testing.assert_close(by_class[0], 0.75 * p[0] + 0.25 * q[0])
    assert torch.equal(by_class[1], q[1])  # client 0 never saw class 1 and has no say
    torch.testing.assert_close(by_class[2], (p[2] + q[2]) / 2)
    torch.testing.assert_close(by_class[3], (p[3] + q[3]) / 2)  # nobody holds class 3: all alike


def test_samples_weigh_prototypes_by_size(task: Task, digits: Dataset) -> None:
    one, two = lived(task, digits, 1), lived(task, digits, 2)
    members = [member(one, ten(30)), member(two, ten(10), client=1)]
    torch.testing.assert_close(rows(members, "samples"), 0.75 * one.head.prototypes + 0.25 * two.head.prototypes)


def test_reliability_counts_those_who_showed_something(task: Task, digits: Dataset) -> None:
    one, two = lived(task, digits, 1), lived(task, digits, 2)
    p, q = one.head.prototypes, two.head.prototypes
    assert torch.equal(rows([member(one, ten(9), 0.5), member(two, ten(2), None)], "reliability"), p)
    useless = [member(one, ten(9), 0.0), member(two, ten(2), 0.0)]
    torch.testing.assert_close(rows(useless, "reliability"), (p + q) / 2)
    with pytest.raises(UserError, match="train with --validation"):
        rows([member(one, ten(9)), member(two, ten(2))], "reliability")


@pytest.mark.parametrize("head", [LinearHead, DualHead])
def test_every_head_with_class_rows_can_be_weighted_by_class(head: type, task: Task, digits: Dataset) -> None:
    one, two = lived(task, digits, 1, head), lived(task, digits, 2, head)
    fused = mean_head([member(one, ten(3, 0)), member(two, ten(1, 4), client=1)], "class_counts").state_dict()
    for name, tensor in fused.items():
        first, second = one.head.state_dict()[name], two.head.state_dict()[name]
        torch.testing.assert_close(tensor[0], 0.75 * first[0] + 0.25 * second[0])
        assert torch.equal(tensor[1], second[1])


def test_a_head_without_class_rows_says_so(task: Task) -> None:
    etf = anchors("etf", 10, 10, 1).T
    model = build(task, lambda width, classes: EtfHead(width, etf)).eval()
    with pytest.raises(UserError, match="one row for each class"):
        mean_head([member(model, ten(3))], "class_counts")
    mean_head([member(model, ten(3))], "samples")
