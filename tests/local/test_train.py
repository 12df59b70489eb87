"""The training loop against a slow twin written by hand; batches, clipping, optimisers, encoders, divergence."""

import math
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import fedshot.local.step as step
from fedshot.errors import UserError
from fedshot.experiment import run
from fedshot.local.forward import inputs_of
from fedshot.local.objective import Objective
from fedshot.local.optimise import make_optimiser, parameter_groups, set_rates
from fedshot.local.step import Training, batch_sizes
from fedshot.local.telemetry import is_finite
from fedshot.local.train import TrainingDiverged, train
from fedshot.local.views import RECIPES, natural_of_normalised
from fedshot.local.weighting import DecoupledUncertainty, Scheduled
from fedshot.method import Client, Views
from fedshot.methods.terms import CONTRAST
from fedshot.models import Classifier, prototypes_of
from fedshot.prepare import prepare
from fedshot.seeds import stream
from fedshot.spec import Spec
from fedshot.task import Task

Quick = Callable[..., Spec]


@given(samples=st.integers(2, 70), batch_size=st.integers(2, 20))
def test_batches_are_complete_and_never_of_one(samples: int, batch_size: int) -> None:
    sizes = batch_sizes(samples, batch_size)
    assert sum(sizes) == samples
    assert all(2 <= size <= batch_size + 1 for size in sizes)
    assert all(size == batch_size for size in sizes[:-1])


def test_every_epoch_has_an_order_of_its_own(quick: Quick) -> None:
    training = training_of(quick("fafi"))
    orders = []
    for _ in range(3):
        training.shuffle()
        orders.append(training.order.tolist())
    assert all(sorted(order) == list(range(40)) for order in orders)
    assert orders[0] != orders[1] != orders[2] != list(range(40))


def test_an_epoch_reads_each_image_once(quick: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Tensor] = []

    def spy(images: Tensor, *rest: Any) -> Tensor:
        read.append(images)
        return inputs_of(images, *rest)

    monkeypatch.setattr(step, "inputs_of", spy)
    training = training_of(quick("fafi"))
    training.shuffle()
    for size in training.sizes:
        training.step(size)
    assert [len(images) for images in read] == [16, 16, 8]
    assert torch.equal(torch.cat(read), training.images[training.order])


def training_of(spec: Spec, number: int = 0) -> Training:
    setting = prepare(spec)
    client = setting.client(number)
    assert isinstance(client, Client)
    return Training(client, setting.method.objective(client), setting.method.views, setting.spec)


def client_of(spec: Spec, number: int = 0) -> tuple[Spec, Client]:
    setting = prepare(spec)
    client = setting.client(number)
    assert isinstance(client, Client)
    return setting.spec, client


def trained(spec: Spec, number: int = 0) -> Classifier:
    """The model of a client after the loop under test."""
    setting = prepare(spec)
    client = setting.client(number)
    assert isinstance(client, Client)
    train(client, setting.method.objective(client), setting.method.views, setting.spec, lambda *_: None)
    return client.model


def fafi_by_hand(spec: Spec, number: int = 0) -> Classifier:
    """FAFI's local training in the plainest words: no groups, no schedules as values, no library optimiser."""
    spec, client = client_of(spec, number)
    model, memory = client.model.train(), {}
    order, draws = stream(spec.seed, "batches", number), stream(spec.seed, "augmentation", number)
    samples, sizes = len(client.train), batch_sizes(len(client.train), client.batch_size)
    pieces = [torch.randperm(samples, generator=order).split(sizes) for _ in range(spec.epochs)]
    total = sum(len(epoch) for epoch in pieces)
    step = 0
    for number_of_epoch, epoch in enumerate(pieces):
        if spec.momentum_epochs and number_of_epoch % spec.momentum_epochs == 0:
            memory = {}
        for batch in epoch:
            images, labels = client.train.images[batch], client.train.labels[batch].repeat(2)
            unit = F.normalize(model.encoder(views_by_hand(images, client.task, draws, spec)), eps=1e-6)
            prototypes = prototypes_of(model)
            assert prototypes is not None
            own = F.cross_entropy(prototypes @ prototypes.T, torch.arange(len(prototypes)))
            loss = 2 * F.cross_entropy(unit @ prototypes.T, labels) + supcon_by_hand(unit, labels) + own
            model.zero_grad()
            loss.backward()
            clip_by_hand(model, spec)
            rate = rate_by_hand(step / total, spec)
            (adamw_by_hand if spec.optimizer == "adamw" else sgd_by_hand)(model, memory, rate, step, spec)
            step += 1
    return model


def views_by_hand(images: Tensor, task: Task, draws: torch.Generator, spec: Spec) -> Tensor:
    """Two views of each image, normalised; all of the first view come first."""
    both, (mean,), (deviation,) = torch.cat([images, images]), task.mean, task.std
    count, make = RECIPES[task.augmentation]
    if spec.draws == "batch":
        first, second = torch.rand(count, 2, generator=draws).unbind(1)
        drawn = torch.stack([first] * len(images) + [second] * len(images), dim=1)
    else:
        drawn = torch.rand(count, len(both), generator=draws)
    if spec.normalisation == "twice":
        return (natural_of_normalised((both / 255 - mean) / deviation, drawn) - mean) / deviation
    return (make(both, drawn) - mean) / deviation


def supcon_by_hand(unit: Tensor, labels: Tensor) -> Tensor:
    losses = []
    for i in range(len(unit)):
        others = [a for a in range(len(unit)) if a != i]
        similarity = unit[others] @ unit[i] / 0.07
        positive = torch.tensor([bool(labels[a] == labels[i]) for a in others])
        losses.append((similarity.logsumexp(0) - similarity)[positive].mean())
    return torch.stack(losses).mean()


def clip_by_hand(model: Classifier, spec: Spec) -> None:
    """The encoder by its own norm; the head by the encoder's factor, then by its own norm. Or both by one norm."""
    if not spec.clip:
        return
    encoder, head = list(model.encoder.parameters()), list(model.head.parameters())
    if spec.clip_scope == "joint":
        scale_by_hand(encoder + head, min(1.0, spec.clip / norm_by_hand(encoder + head)))
    else:
        factor = min(1.0, spec.clip / norm_by_hand(encoder))
        scale_by_hand(encoder + head, factor)
        scale_by_hand(head, min(1.0, spec.clip / norm_by_hand(head)))


def norm_by_hand(parameters: list[nn.Parameter]) -> float:
    return math.sqrt(sum(float(p.grad.double().square().sum()) for p in parameters if p.grad is not None))


def scale_by_hand(parameters: list[nn.Parameter], factor: float) -> None:
    for p in parameters:
        if p.grad is not None:
            p.grad *= factor


def rate_by_hand(progress: float, spec: Spec) -> float:
    if progress < spec.warmup:
        return spec.lr * progress / spec.warmup
    left = (progress - spec.warmup) / (1 - spec.warmup)
    factor = {
        "constant": 1.0,
        "linear": 1 - left,
        "cosine": (1 + math.cos(math.pi * left)) / 2,
        "step": 1.0 if left < 0.5 else 0.1 if left < 0.75 else 0.01,
    }
    return spec.lr * factor[spec.schedule]


@torch.no_grad()
def sgd_by_hand(model: Classifier, memory: dict[str, Any], rate: float, step: int, spec: Spec) -> None:
    for name, p in model.named_parameters():
        assert p.grad is not None
        slope = p.grad + spec.weight_decay * p
        memory[name] = spec.momentum * memory.get(name, 0) + slope
        p -= rate * memory[name]


@torch.no_grad()
def adamw_by_hand(model: Classifier, memory: dict[str, Any], rate: float, step: int, spec: Spec) -> None:
    for name, p in model.named_parameters():
        assert p.grad is not None
        mean, square = memory.get(name, (0, 0))
        mean = spec.momentum * mean + (1 - spec.momentum) * p.grad
        square = 0.999 * square + 0.001 * p.grad**2
        memory[name] = (mean, square)
        p *= 1 - rate * spec.weight_decay
        p -= rate * (mean / (1 - spec.momentum ** (step + 1))) / ((square / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8)


def differences(one: Classifier, other: Classifier) -> Tensor:
    """How far apart the parameters of two models are, one by one."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return torch.cat([(p - q).detach().abs().flatten() for p, q in pairs])


def largest_difference(one: nn.Module, other: nn.Module) -> float:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs)


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"clip": 0.0, "lr": 0.01},
    "clipped": {},
    "clipped jointly": {"clip_scope": "joint"},
    "decayed": {"weight_decay": 0.1},
    "cosine after a warm-up": {"schedule": "cosine", "warmup": 0.3},
    "linear": {"schedule": "linear"},
    "steps": {"schedule": "step"},
    "adamw": {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.1, "schedule": "cosine"},
    "momentum anew every epoch": {"momentum_epochs": 1},
    "one draw for a batch": {"draws": "batch"},
    "normalised twice": {"normalisation": "twice", "augmentation": "natural", "lr": 0.001},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_loop_equals_its_slow_twin(name: str, quick: Quick) -> None:
    spec = quick("fafi", **SETTINGS[name])
    apart = differences(trained(spec), fafi_by_hand(spec))
    if spec.optimizer == "adamw":
        # Adam divides a slope by its size, so that the rounding of the few that are near 0 becomes visible
        assert apart.quantile(0.99) < 1e-4 and apart.max() < 10 * spec.lr
    else:
        assert apart.max() < 1e-5


def test_the_twin_can_tell_settings_apart(quick: Quick) -> None:
    # otherwise the test above would say nothing about clipping, decay and schedules
    found = trained(quick("fafi"))
    for name, changes in SETTINGS.items():
        if changes:
            assert largest_difference(found, trained(quick("fafi", **changes))) > 1e-3, name


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_momentum_begins_anew_after_as_many_epochs_as_asked_and_never_by_itself(optimizer: str, quick: Quick) -> None:
    ends = [
        trained(quick("fafi", epochs=4, lr=1e-3, optimizer=optimizer, momentum_epochs=epochs))
        for epochs in (None, 1, 2, 4)
    ]
    assert largest_difference(ends[0], ends[3]) == 0.0
    assert min(largest_difference(one, two) for one, two in combinations(ends[:3], 2)) > 1e-4


def test_normalising_twice_is_not_the_same_recipe_once(quick: Quick) -> None:
    ends = [trained(quick("fafi", augmentation="natural", normalisation=how)) for how in ("alike", "twice")]
    assert largest_difference(*ends) > 1e-3


def test_views_normalised_twice_need_the_recipe_that_published_code_has_them_of(quick: Quick) -> None:
    with pytest.raises(UserError, match="add --set augmentation=natural"):
        prepare(quick("fafi", normalisation="twice"))


def test_weight_decay_that_is_asked_for_is_applied_but_not_to_the_sigmas(quick: Quick) -> None:
    spec, client = client_of(quick("fafi", weight_decay=0.5, momentum=0.0))
    policy = DecoupledUncertainty(8.0)
    groups = parameter_groups(client.model, policy, spec, torch.device("cpu"))
    optimiser = make_optimiser(groups, spec)
    before = {name: p.detach().clone() for name, p in client.model.named_parameters()}
    set_rates(groups, torch.tensor(0.0), spec)
    for p in [*client.model.parameters(), *policy.parameters()]:
        p.grad = torch.zeros_like(p)
    optimiser.step()
    for name, p in client.model.named_parameters():
        torch.testing.assert_close(p.detach(), before[name] * (1 - 0.05 * 0.5))
    assert policy.log_variance_local.item() == pytest.approx(math.log(8.0))


def test_the_schedule_moves_the_weights_but_not_the_sigmas(quick: Quick) -> None:
    spec, client = client_of(quick("fafi", schedule="linear", warmup=0.2, lr=0.4))
    groups = parameter_groups(client.model, DecoupledUncertainty(8.0), spec, torch.device("cpu"))
    optimiser = make_optimiser(groups, spec)
    for progress, expected in ((0.0, 0.0), (0.1, 0.2), (0.2, 0.4), (0.6, 0.2)):
        set_rates(groups, torch.tensor(progress), spec)
        rates = [float(group["lr"]) for group in optimiser.param_groups]
        assert rates == pytest.approx([expected, expected, 0.005], abs=1e-6)


def test_a_policy_without_parameters_adds_no_group(quick: Quick) -> None:
    spec, client = client_of(quick("fafi"))
    groups = parameter_groups(client.model, Scheduled(1.0), spec, torch.device("cpu"))
    assert [group.name for group in groups] == ["encoder", "head"]


def first_step(quick: Quick, weight: float, scope: str) -> Classifier:
    """A client after one step on all of its images."""
    return trained(quick("etf", {"weight": weight}, epochs=1, batch_size=64, clip_scope=scope))


def test_clipping_by_group_keeps_lambda_out_of_the_encoder(quick: Quick) -> None:
    mild, wild = first_step(quick, 1.0, "group"), first_step(quick, 1e6, "group")
    assert largest_difference(mild.encoder, wild.encoder) == 0.0
    assert largest_difference(mild.head, wild.head) > 1e-3


def test_joint_clipping_lets_lambda_stop_the_encoder(quick: Quick) -> None:
    start = client_of(quick("etf"))[1].model
    moved = {weight: encoder_move(start, first_step(quick, weight, "joint")) for weight in (1.0, 1e6)}
    assert moved[1.0] > 1e-2
    assert moved[1e6] < 1e-3 * moved[1.0]


def encoder_move(start: Classifier, end: Classifier) -> float:
    pairs = zip(start.encoder.parameters(), end.encoder.parameters(), strict=True)
    return math.sqrt(sum(float((a - b).detach().square().sum()) for a, b in pairs))


def test_a_clipped_step_has_the_asked_length(quick: Quick) -> None:
    spec = quick("fafi", epochs=1, batch_size=64, clip=0.25, lr=0.5)
    start, end = client_of(spec)[1].model, trained(spec)
    assert encoder_move(start, end) == pytest.approx(0.25 * 0.5, rel=1e-3)


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "group"},
        {"encoder": "vit"},
        {"encoder": "mobilenet_v2"},
        {"encoder": "resnet18"},
        {"precision": "bf16"},
    ],
    ids=lambda changes: "-".join(changes.values()),
)
def test_every_encoder_trains(changes: dict[str, Any], quick: Quick) -> None:
    spec = quick("fafi", epochs=1, batch_size=9, **changes)
    start, end = client_of(spec, 2)[1].model, trained(spec, 2)
    assert encoder_move(start, end) > 1e-2
    assert all(tensor.isfinite().all() for tensor in end.state_dict().values())
    assert {p.dtype for p in end.parameters()} == {torch.float32}


def test_training_changes_nothing_but_its_own_model(quick: Quick) -> None:
    spec, client = client_of(quick("aurora"))
    before = client.train.images.clone(), torch.get_rng_state()
    trained(spec)
    assert torch.equal(client.train.images, before[0])
    assert torch.equal(torch.get_rng_state(), before[1])


@pytest.mark.parametrize("changes", [{"lr": 1e30, "clip": 0.0}, {"lr": 1e30, "clip": 0.0, "validation": 0.2}])
def test_a_run_in_which_all_diverge_says_so(changes: dict[str, Any], quick: Quick) -> None:
    with pytest.raises(UserError, match="nothing to fuse: client 0: training diverged in epoch 1"):
        run(quick("fafi", **changes))


UNSTABLE = """
from dataclasses import replace

from fedshot.local.objective import Objective, Term
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import FAFI_TERMS


def unstable() -> Method:
    def objective(client: Client) -> Objective:
        late = Term("late", lambda step: step.logits.sum() * (float("inf") if step.progress >= 0.5 else 0.0))
        return Objective(base=FAFI_TERMS + ((late,) if client.id == 1 else ()))

    return replace(fafi(), name="unstable", objective=objective)
"""


def test_a_client_that_diverges_is_skipped_and_the_others_go_on(tmp_path: Path, quick: Quick) -> None:
    (tmp_path / "unstable.py").write_text(UNSTABLE)
    spec = quick(str(tmp_path / "unstable.py"), epochs=4, evaluate_at=(1, 4))
    record = run(spec, tmp_path / "run")
    first, second, third = record.clients
    assert second.skipped == "training diverged in epoch 3: the loss or the model is not finite"
    assert second.upload_sha256 is None and second.upload_bytes == 0 and second.accuracy_alone is None
    assert first.skipped is third.skipped is None
    # the others are what they are without it
    alone = run(quick("fafi", epochs=4, evaluate_at=(1, 4)), tmp_path / "alone")
    assert [first.upload_sha256, third.upload_sha256] == [
        alone.clients[0].upload_sha256,
        alone.clients[2].upload_sha256,
    ]
    assert 0 < record.final.accuracy < 1 and len(record.curve) == 2
    rows = (tmp_path / "run" / "clients" / "1" / "telemetry.jsonl").read_text().splitlines()
    assert len(rows) == 3 and '"base_loss": null' in rows[2]


def test_the_loop_stops_at_the_first_epoch_that_is_not_finite(quick: Quick) -> None:
    spec, client = client_of(quick("fafi", lr=1e30, clip=0.0))
    seen: list[int] = []
    setting = prepare(spec)
    with pytest.raises(TrainingDiverged) as caught:
        train(client, setting.method.objective(client), setting.method.views, spec, lambda e, *_: seen.append(e))
    assert seen == [] and caught.value.row["epoch"] == 1


def test_a_buffer_that_overflows_is_noticed(quick: Quick) -> None:
    model = client_of(quick("fafi"))[1].model
    assert is_finite(model)
    next(b for name, b in model.named_buffers() if name.endswith("running_var")).fill_(torch.inf)
    assert not is_finite(model)


def test_an_objective_may_leave_the_head_alone(quick: Quick) -> None:
    spec, client = client_of(quick("fafi", epochs=1), 0)
    before = client.model.head.prototypes.detach().clone()
    train(client, Objective(base=(CONTRAST,)), Views(), spec, lambda *_: None)
    assert torch.equal(client.model.head.prototypes, before)


def test_every_epoch_has_its_row_and_only_evaluation_points_a_model(quick: Quick) -> None:
    setting = prepare(quick("fafi", epochs=4, evaluate_at=(2,)))
    client = setting.client(0)
    assert isinstance(client, Client)
    told: list[tuple[int, int, bool]] = []
    train(
        client,
        setting.method.objective(client),
        setting.method.views,
        setting.spec,
        lambda epoch, model, row: told.append((epoch, row["epoch"], model is not None)),
    )
    assert told == [(1, 1, False), (2, 2, True), (3, 3, False), (4, 4, True)]
