"""Joint labels of class and turn: what a client trains on, and how its model answers."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedshot.local.step import Training
from fedshot.method import Client, Views
from fedshot.methods.recommended import turned_model
from fedshot.models import Classifier, PrototypeHead, build
from fedshot.models.copies import copy_of, frozen_copy
from fedshot.models.turned import TurnedClassifier, all_turns, turn_at_random, turn_shares, turns_of
from fedshot.prepare import prepare
from fedshot.spec import Spec
from fedshot.task import Task

SHAPES = [(1, 8, 8), (3, 8, 12)]


@pytest.fixture(scope="module", params=SHAPES, ids=str)
def shaped(request: pytest.FixtureRequest, task: Task) -> Task:
    channels = request.param[0]
    return replace(task, classes=5, shape=request.param, mean=(0.5,) * channels, std=(0.2,) * channels)


@pytest.fixture(scope="module")
def model(shaped: Task) -> Classifier:
    """An untrained model whose BatchNorm saw noise."""
    made = turned_model(shaped).train()
    with torch.no_grad():
        made.encoder(images_of(shaped, 32))
    return made.eval()


def images_of(task: Task, count: int) -> Tensor:
    return torch.randn(count, *task.shape, generator=torch.Generator().manual_seed(4))


def turned(image: Tensor, turn: int, turns: int) -> Tensor:
    """Pixel by pixel: an image (channels, H, W) turned left by `turn` of `turns` parts of a circle."""
    for _ in range(turn * 4 // turns):
        _, height, width = image.shape
        image = torch.stack([image[:, row, width - 1 - column] for column in range(width) for row in range(height)], 1)
        image = image.view(-1, width, height)
    return image


def test_turns_keep_the_shape(shaped: Task) -> None:
    images, turns = images_of(shaped, 3), turns_of(shaped.shape)
    found = all_turns(images)
    assert found.shape == (turns, 3, *shaped.shape)
    for t in range(turns):
        assert torch.equal(found[t], torch.stack([turned(image, t, turns) for image in images]))


@pytest.mark.parametrize("upright", [0.0, 0.4, 1.0])
def test_a_random_turn_stands_in_the_label(upright: float, shaped: Task) -> None:
    images, turns = images_of(shaped, 400), turns_of(shaped.shape)
    labels, shares = torch.arange(400) % 5, torch.full((turns,), (1 - upright) / (turns - 1))
    shares[0] = upright
    found, joint = turn_at_random(images, labels, shares, torch.Generator().manual_seed(1))
    assert torch.equal(joint // turns, labels)
    for n in range(0, 400, 7):
        assert torch.equal(found[n], turned(images[n], int(joint[n]) % turns, turns))
    often = torch.bincount(joint % turns, minlength=turns)
    assert (often - 400 * shares).abs().max() < 50  # four deviations and more
    assert not often[shares == 0].any()


def test_turns_are_drawn_by_the_generator_alone(shaped: Task) -> None:
    images, labels, before = images_of(shaped, 20), torch.zeros(20, dtype=torch.int64), torch.get_rng_state()
    shares = turn_shares([1, 0], turns_of(shaped.shape))
    draws = [turn_at_random(images, labels, shares, torch.Generator().manual_seed(seed))[1] for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert torch.equal(torch.get_rng_state(), before)


def test_the_last_number_below_1_is_a_turn_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda *size, **rest: torch.full(size, 1.0))
    shares = torch.full((4,), 0.25)
    _, joint = turn_at_random(torch.zeros(2, 1, 8, 8), torch.tensor([0, 3]), shares, torch.Generator())
    assert joint.tolist() == [3, 15]


def test_the_more_labels_teach_the_less_a_client_turns() -> None:
    held = [[7, 0, 0, 0, 0], [50, 5, 0, 0, 0], [5, 5, 0, 0, 0], [5, 5, 5, 5, 0], [3, 3, 3, 3, 3]]
    upright = [turn_shares(counts, 4)[0].item() for counts in held]
    assert upright == sorted(upright) and upright[0] == 0.25 and upright[-1] == pytest.approx(1)
    assert upright[2] == pytest.approx(1 - 0.75 * (1 - math.log(2) / math.log(5)))
    for counts in held:
        shares = turn_shares(counts, 4)
        assert shares.sum() == pytest.approx(1) and (shares >= 0).all() and shares[1:].std() == 0
    assert turn_shares([9], 2).tolist() == [0.5, 0.5], "a task of one class"


def test_a_client_turns_by_what_it_holds_unless_its_counts_are_hidden(quick: Callable[..., Spec]) -> None:
    def shares(**settings: Any) -> list[Tensor]:
        setting = prepare(quick("recommended", **settings))
        clients = [client for client in map(setting.client, range(3)) if isinstance(client, Client)]
        expected = [turn_shares(client.class_counts, 4) for client in clients]
        found = [client.model.get_buffer("shares") for client in clients]
        assert torch.equal(setting.initial_model.get_buffer("shares"), torch.full((4,), 0.25)), "nobody's"
        assert all(map(torch.equal, found, expected)) is ("counts" not in settings)
        return found

    assert len({tuple(each.tolist()) for each in shares()}) > 1
    assert {tuple(each.tolist()) for each in shares(counts="noised:1", fusion="features")} == {(0.25,) * 4}


@torch.no_grad()
@pytest.mark.parametrize("counts", [[1, 0, 0, 0, 0], [4, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
def test_a_class_is_the_mean_of_its_joint_logits_over_turns(counts: list[int], model: Classifier, shaped: Task) -> None:
    images, turns = images_of(shaped, 6), turns_of(shaped.shape)
    model = copy_of(model)
    model.begin(counts)
    shares = turn_shares(counts, turns).double()
    prototypes = model.head.get_parameter("prototypes").double()
    assert prototypes.shape == (5 * turns, model.encoder.width)
    expected = torch.zeros(6, 5, dtype=torch.float64)
    for t in range(turns):
        h = model.encoder(torch.stack([turned(image, t, turns) for image in images])).double()
        for n in range(6):
            for c in range(5):
                expected[n, c] += shares[t] * (h[n] @ prototypes[c * turns + t]) / h[n].norm()
    torch.testing.assert_close(model(images).double(), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_features_are_those_of_all_turns_side_by_side(model: Classifier, shaped: Task) -> None:
    images, turns = images_of(shaped, 6), turns_of(shaped.shape)
    found = model.features(images)
    assert found.shape == (6, model.width) and model.width == turns * model.encoder.width
    torch.testing.assert_close(found.norm(dim=1), torch.ones(6))
    torch.testing.assert_close(model.logits(found), model(images))
    of_next = model.features(torch.stack([turned(image, 1, turns) for image in images]))
    torch.testing.assert_close(of_next, found.roll(-model.encoder.width, 1), rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_upright_is_the_model_of_the_first_turn(model: Classifier, shaped: Task) -> None:
    images, upright = images_of(shaped, 6), model.upright()
    joint = model.head(model.encoder(images))
    assert type(upright) is Classifier and upright.width == model.encoder.width
    torch.testing.assert_close(upright(images), joint[:, :: turns_of(shaped.shape)])
    upright.head.get_parameter("prototypes").zero_()
    assert model.head.get_parameter("prototypes").any()
    plain = build(shaped, PrototypeHead)
    assert plain.upright() is plain and plain.answering_head() is plain.head


def test_answering_draws_nothing_and_trains_nothing(model: Classifier, shaped: Task) -> None:
    before = torch.get_rng_state()
    head = model.answering_head()
    model.upright()
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(parameter.requires_grad for parameter in head.parameters())
    assert all(parameter.requires_grad for parameter in model.head.parameters())


@torch.no_grad()
@pytest.mark.parametrize("copy", [copy_of, frozen_copy])
def test_a_copy_looks_at_every_turn_too(
    copy: Callable[[Classifier], Classifier], model: Classifier, shaped: Task
) -> None:
    made = copy(model)
    assert isinstance(made, TurnedClassifier)
    assert torch.equal(made(images_of(shaped, 3)), model(images_of(shaped, 3)))


def test_a_step_sees_turned_images_with_joint_labels(
    quick: Callable[..., Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = prepare(quick("recommended"))
    client = setting.client(0)
    assert isinstance(client, Client) and setting.method.views.turned
    shown: list[Tensor] = []
    monkeypatch.setattr(
        "fedshot.local.step.inputs_of", lambda images, *rest: shown.append(images) or images.repeat(2, 1, 1, 1) / 255
    )

    def seen(views: Views) -> tuple[Tensor, Tensor, Tensor]:
        training = Training(client, setting.method.objective(client), views, setting.spec)
        training.shuffle()
        step = training.forward(16)
        assert step.logits.shape == (32, 40) and torch.equal(step.labels, step.image_labels.repeat(2))
        return client.train.images[training.order[:16]], client.train.labels[training.order[:16]], step.image_labels

    images, labels, joint = seen(setting.method.views)
    assert torch.equal(joint // 4, labels) and len((joint % 4).unique()) > 1
    assert torch.equal(shown[0], torch.stack([turned(x, int(y) % 4, 4) for x, y in zip(images, joint, strict=True)]))
    images, labels, plain = seen(replace(setting.method.views, turned=False))
    assert torch.equal(plain, labels) and torch.equal(shown[1], images)
