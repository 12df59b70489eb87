"""What every number of this lab promises, item by item. Each is a defect found in published one-shot code."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedshot.local.forward as forward
import fedshot.local.step as step
from fedshot.data.dataset import Dataset, Labelled
from fedshot.errors import UserError
from fedshot.experiment import finish_run, run
from fedshot.fusion import average
from fedshot.local.optimise import make_optimiser
from fedshot.local.train import train
from fedshot.local.views import augment
from fedshot.local.work import train_client, upload_of
from fedshot.method import Client
from fedshot.models import Classifier
from fedshot.models.cnn import Cnn
from fedshot.partition import RECIPES
from fedshot.prepare import prepare
from fedshot.server import receive
from fedshot.setting import Setting
from fedshot.spec import Spec, make_spec
from fedshot.store import RunFolder
from fedshot.study.statistics import paired_difference, percent, points, summarise
from fedshot.task import Task
from fedshot.upload import SECTIONS, parse

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]


PROBE = 2  # noise images with which the server tries a model before it trusts it


@dataclass(frozen=True)
class Seen:
    """What an encoder was given."""

    training: bool
    images: Tensor


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Seen]:
    """Every batch that any encoder reads from now on."""
    found: list[Seen] = []
    forward = Cnn.forward

    def spy(self: Cnn, images: Tensor) -> Tensor:
        found.append(Seen(self.training, images.detach().clone()))
        return forward(self, images)

    monkeypatch.setattr(Cnn, "forward", spy)
    return found


def real(seen: list[Seen]) -> list[Seen]:
    """Without the server's probes."""
    return [batch for batch in seen if batch.training or len(batch.images) != PROBE]


def ready(setting: Setting, number: int = 0) -> Client:
    client = setting.client(number)
    assert isinstance(client, Client)
    return client


def train_alone(setting: Setting, number: int, at_epoch: Callable[..., None] = lambda *_: None) -> Classifier:
    client = ready(setting, number)
    train(client, setting.method.objective(client), setting.method.views, setting.spec, at_epoch)
    return client.model


# 1. Clients hold disjoint data; the overlap and the fingerprint are in the record.


@pytest.mark.parametrize("recipe", sorted(RECIPES.keys() - {"released", "natural"}))
def test_01_clients_hold_disjoint_data(recipe: str) -> None:
    setting = prepare(make_spec(method="fafi", recipe=recipe, clients=4, classes_per_client=3, alpha=0.5))
    held = [index for part in setting.partition.indices for index in part.tolist()]
    assert len(held) == len(set(held)) > 1000
    assert setting.partition.overlap == 0.0


def test_01_the_record_names_the_partition_and_its_overlap(quick: Quick, finished: FinishedRun) -> None:
    partition = finished(quick("fafi")).record.partition
    assert partition["fingerprint"] == prepare(quick("fafi")).partition.fingerprint
    assert partition["overlap"] == 0.0 and partition["sizes"] == [40, 33, 17]


def test_01_the_published_overlapping_recipe_is_only_to_be_had_by_name() -> None:
    released = prepare(make_spec(method="fafi", recipe="released", clients=4)).partition
    assert released.overlap > 0.1 and released.summary()["overlap"] == released.overlap
    assert make_spec(method="fafi").recipe == "dirichlet"


# 2. Train and test images pass through the same normalisation, once; jitter acts on [0, 1].


def test_02_normalised_digits_have_mean_0_and_deviation_1(digits: Dataset, task: Task) -> None:
    for part, tolerance in ((digits.train, 1e-4), (digits.test, 0.03)):
        prepared = task.prepare(part.images)
        assert prepared.mean().item() == pytest.approx(0.0, abs=tolerance)
        assert prepared.std().item() == pytest.approx(1.0, abs=tolerance)


def test_02_training_and_evaluation_normalise_alike_and_once(
    quick: Quick, task: Task, seen: list[Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "view", lambda images, draws, recipe: images.float() / 255)
    run(quick("fafi", epochs=1, validation=0.2))
    assert {batch.training for batch in seen} == {True, False}
    assert sum(len(batch.images) for batch in seen if not batch.training) > 360
    for batch in real(seen):
        levels = (batch.images * task.std[0] + task.mean[0]) * 255  # stored pixels again, if normalised just once
        assert (levels - levels.round()).abs().max() < 1e-3
        assert levels.min() > -0.5 and levels.max() < 255.5


@pytest.mark.parametrize(("how", "training", "evaluation"), [("views", 1, 0), ("twice", 2, 1)])
def test_02_the_published_normalisations_are_only_to_be_had_by_name(
    how: Any, training: int, evaluation: int, quick: Quick, seen: list[Seen], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer times for evaluation than for training; never by a kernel that knows them not."""
    monkeypatch.setattr(forward, "view", lambda images, *_: images / 255 if images.dtype == torch.uint8 else images)
    setting = prepare(quick("fafi", epochs=1, validation=0.2, augmentation="natural", normalisation=how))
    run(setting.spec)
    mean, deviation = setting.task.mean[0], setting.task.std[0]
    assert {batch.training for batch in seen} == {True, False}
    for batch in real(seen):
        pixels = batch.images
        for _ in range(training if batch.training else evaluation):
            pixels = pixels * deviation + mean
        assert (255 * pixels - (255 * pixels).round()).abs().max() < 1e-3 and pixels.min() > -0.01
    images = torch.randint(256, (4, 3, 8, 8), generator=torch.Generator().manual_seed(1)).byte()
    colours = replace(setting.task, shape=(3, 8, 8), mean=(0.4, 0.5, 0.6), std=(0.2, 0.2, 0.2))
    if how == "twice":
        assert torch.equal(*(forward.inputs_of(images, torch.rand(11, 4), False, colours, fused) for fused in (0, 1)))
    untouched, none = replace(colours, augmentation="none"), torch.empty(0, 8)
    assert torch.equal(forward.inputs_of(images, none, False, untouched), untouched.prepare(images.repeat(2, 1, 1, 1)))
    stored = setting.data.test.images[:50]
    torch.testing.assert_close(setting.task.pixels(setting.task.prepare(stored)), stored / 255)
    assert make_spec(method="fafi").normalisation == "alike"


def test_02_augmented_pixels_stay_in_the_unit_interval_before_normalisation(
    quick: Quick, task: Task, seen: list[Seen]
) -> None:
    run(quick("fafi", epochs=1, augmentation="natural"))
    for batch in real(seen):
        pixels = batch.images * task.std[0] + task.mean[0]
        assert pixels.min() >= -1e-5 and pixels.max() <= 1 + 1e-5
        assert pixels.max() > 0.5


# 3. Augmentation draws per sample.


@pytest.mark.parametrize("recipe", ["natural", "characters"])
def test_03_augmentation_draws_per_sample(recipe: Any, digits: Dataset) -> None:
    same = digits.train.images[:1].repeat(64, 1, 1, 1)
    views = augment(same, recipe, torch.Generator().manual_seed(1))
    assert len({tuple(view.flatten().tolist()) for view in views}) >= 63


def test_03_the_loop_draws_per_sample_and_view(quick: Quick, seen: list[Seen]) -> None:
    setting = prepare(quick("fafi", epochs=1))
    image = setting.data.train.images[:1].expand_as(setting.data.train.images)
    alike = replace(setting.data, train=Labelled(image, setting.data.train.labels))
    train_alone(replace(setting, data=alike), 0)
    inputs = torch.cat([batch.images for batch in seen]).flatten(1)
    assert len(inputs) == 2 * 40  # two views of each image
    assert len({tuple(view.tolist()) for view in inputs}) == len(inputs)


def test_03_one_draw_for_a_batch_is_only_to_be_had_by_name(quick: Quick, seen: list[Seen]) -> None:
    setting = prepare(quick("fafi", epochs=1, draws="batch"))
    image = setting.data.train.images[:1].expand_as(setting.data.train.images)
    alike = replace(setting.data, train=Labelled(image, setting.data.train.labels))
    train_alone(replace(setting, data=alike), 0)
    batches = [{tuple(view.flatten().tolist()) for view in batch.images} for batch in seen]
    assert [len(batch) for batch in batches] == [2, 2, 2] and len(set.union(*batches)) == 6
    for batch in seen:
        assert all(torch.equal(each, view[0]) for view in batch.images.chunk(2) for each in view)
    assert make_spec(method="fafi").draws == "sample"


# 4. Evaluation never touches the live model.


@pytest.mark.parametrize("method", ["aurora", "fedavg"])
def test_04_evaluation_leaves_everything_as_it_was(method: str, quick: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = prepare(quick(method, validation=0.2, evaluate_at=(1, 2)))
    optimisers: list[torch.optim.Optimizer] = []
    monkeypatch.setattr(
        step, "make_optimiser", lambda *args: optimisers.append(make_optimiser(*args)) or optimisers[-1]
    )
    evaluations: list[int] = []

    def evaluate(epoch: int, model: Classifier, row: Any) -> None:
        random = torch.get_rng_state()
        assert not any(module.training for module in model.modules())
        assert not any(p.requires_grad for p in model.parameters())
        upload_of(setting, ready(setting), model, SECTIONS)
        assert torch.equal(torch.get_rng_state(), random)
        for tensor in model.state_dict().values():  # it is a copy: whatever happens to it
            tensor.zero_()
        evaluations.append(epoch)

    watched, unwatched = train_alone(setting, 0, evaluate), train_alone(setting, 0)
    assert evaluations == [1, 2]
    for one, other in zip(watched.state_dict().values(), unwatched.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    memories = [[state["momentum_buffer"] for state in found.state.values()] for found in optimisers]
    assert len(memories) == 2 and len(memories[0]) > 10
    assert all(torch.equal(a, b) for a, b in zip(*memories, strict=True))


def test_04_the_upload_of_a_live_model_leaves_it_alive(quick: Quick) -> None:
    setting = prepare(quick("fafi", validation=0.2))
    model = ready(setting).model.train()
    before = {k: t.clone() for k, t in model.state_dict().items()}
    upload_of(setting, ready(setting), model, SECTIONS)
    assert all(module.training for module in model.modules())
    assert all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(tensor, before[k]) for k, tensor in model.state_dict().items())


def test_04_the_next_batches_and_views_are_the_same_after_an_evaluation(quick: Quick, seen: list[Seen]) -> None:
    read: list[list[Tensor]] = []
    for points_asked in ((1, 2, 3), ()):
        seen.clear()
        run(quick("fafi", epochs=3, evaluate_at=points_asked))
        read.append([batch.images for batch in seen if batch.training])
    assert len(read[0]) == len(read[1]) == 3 * (3 + 2 + 1)
    assert all(torch.equal(a, b) for a, b in zip(*read, strict=True))


# 5. Averaging parameters averages BatchNorm buffers too.


def test_05_averaging_averages_the_statistics_of_batchnorm(quick: Quick, finished: FinishedRun) -> None:
    done, setting = finished(quick("fedavg")), prepare(quick("fedavg"))
    members = receive(setting, done.folder, ("weights",)).members
    (model,) = average().fuse(members, setting.task).models
    fused, states = model.state_dict(), [m.model.state_dict() for m in members]
    names = [name for name in fused if name.endswith(("running_mean", "running_var"))]
    assert len(names) >= 8
    for name in names:
        expected = sum(n / 90 * state[name] for n, state in zip((40, 33, 17), states, strict=True))
        torch.testing.assert_close(fused[name], expected)
        assert not torch.allclose(fused[name], states[0][name], rtol=1e-3)


# 6. The reported figure is the last evaluation point, never the best on test.

SPOILED = """
from dataclasses import replace

from fedshot.local.objective import Objective, Term
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CLASSIFICATION


def spoiled() -> Method:
    # learns for three quarters of the run, then unlearns
    def value(step):
        return CLASSIFICATION.value(step) * (1.0 if step.progress < 0.75 else -1.0)

    def objective(client: Client) -> Objective:
        return Objective(base=(Term("classification", value),))

    return replace(fafi(), name="spoiled", objective=objective)
"""


def test_06_the_reported_figure_is_the_last_one_even_if_an_earlier_was_better(tmp_path: Path, quick: Quick) -> None:
    (tmp_path / "spoiled.py").write_text(SPOILED)
    record = run(quick(str(tmp_path / "spoiled.py"), epochs=8, evaluate_at=(6, 8)))
    better, last = record.curve
    assert better.accuracy > last.accuracy + 0.1
    assert record.final.epoch == last.epoch == record.spec.epochs
    assert (record.final.accuracy, record.final.balanced_accuracy, record.final.nll) == (
        last.accuracy,
        last.balanced_accuracy,
        last.nll,
    )


def test_06_a_record_knows_no_best(quick: Quick, finished: FinishedRun) -> None:
    def names(value: Any) -> set[str]:
        if isinstance(value, dict):
            return set(value) | {name for part in value.values() for name in names(part)}
        return {name for part in value for name in names(part)} if isinstance(value, list) else set()

    found = names(finished(quick("fafi")).record.model_dump(mode="json"))
    assert "accuracy" in found
    assert not [name for name in found if "best" in name or "max" in name or "peak_accuracy" in name]


def test_06_training_never_sees_the_test_images(quick: Quick, finished: FinishedRun, tmp_path: Path) -> None:
    setting = prepare(quick("aurora"))
    noise = torch.randint_like(setting.data.test.images, 256)
    other = replace(setting.data, test=Labelled(noise, setting.data.test.labels.flip(0)))
    train_client(replace(setting, data=other), 0, RunFolder(tmp_path), lambda epoch: None)
    assert sha256(RunFolder(tmp_path), 0) == sha256(finished(quick("aurora")).folder, 0)


def test_06_validation_images_are_the_clients_own_and_not_trained_on(quick: Quick) -> None:
    setting = prepare(quick("fafi", validation=0.25))
    for number, size in enumerate((40, 33, 17)):
        client = ready(setting, number)
        assert client.validation is not None
        assert len(client.train) + len(client.validation) == size
        assert len(client.validation) == round(0.25 * size)
        mine = setting.data.train.images[torch.from_numpy(setting.partition.indices[number])].flatten(1).tolist()
        together = torch.cat([client.train.images, client.validation.images]).flatten(1).tolist()
        assert sorted(mine) == sorted(together)
        assert sum(client.class_counts) == len(client.train)


def test_06_what_is_chosen_by_was_neither_trained_nor_tested_on(quick: Quick, tmp_path: Path) -> None:
    spec = quick("fafi", validation=0.25, epochs=1, evaluate_at=())
    setting, record = prepare(spec), run(spec, tmp_path / "run")
    assert setting.held_out is not None and record.held_out is not None
    used = [part for k in range(3) for part in (ready(setting, k).train.images, setting.data.test.images)]
    seen = {image.numpy().tobytes() for images in used for image in images}
    assert not seen & {image.numpy().tobytes() for image in setting.held_out.images}
    data = replace(setting.data, test=setting.data.test[torch.arange(5)])  # of other test images it knows nothing
    others = finish_run(replace(setting, data=data), RunFolder(tmp_path / "run"))
    assert others.final != record.final and others.held_out == record.held_out


# 7. Momentum lives as long as the client; schedules run over the whole run; weight decay that is asked for is applied.


def test_07_one_optimiser_serves_the_whole_run(quick: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.optim.Optimizer] = []
    rates: list[float] = []

    def spy(groups: Any, spec: Spec) -> torch.optim.Optimizer:
        optimiser = make_optimiser(groups, spec)
        optimiser.register_step_pre_hook(lambda opt, *_: rates.append(float(opt.param_groups[0]["lr"])))
        made.append(optimiser)
        return optimiser

    monkeypatch.setattr(step, "make_optimiser", spy)
    setting = prepare(quick("fafi", epochs=4, schedule="cosine", weight_decay=1e-3, evaluate_at=(1, 2, 3, 4)))
    train_alone(setting, 0)
    assert len(made) == 1
    total = 4 * 3
    assert rates == pytest.approx([0.05 * (1 + math.cos(math.pi * i / total)) / 2 for i in range(total)], rel=1e-5)
    assert [group["weight_decay"] for group in made[0].param_groups] == [1e-3, 1e-3]
    assert [group["momentum"] for group in made[0].param_groups] == [0.9, 0.9]


def test_07_momentum_begins_anew_only_if_that_is_asked_for(quick: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[int] = []
    monkeypatch.setattr(step.Training, "forget_momentum", lambda self: forgotten.append(round(float(self.done)) // 3))
    train_alone(prepare(quick("fafi", epochs=4)), 0)
    assert not forgotten
    train_alone(prepare(quick("fafi", epochs=7, momentum_epochs=2)), 0)
    assert forgotten == [2, 4, 6]  # before the epoch after so many


def test_07_weight_decay_moves_the_weights(quick: Quick) -> None:
    plain, decayed = (train_alone(prepare(quick("fafi", weight_decay=decay)), 0) for decay in (0.0, 0.5))
    assert decayed.head.prototypes.norm() < 0.95 * plain.head.prototypes.norm()


# 8. A client with one sample, one class, or fewer samples than a batch trains or is skipped with a stated reason.


@pytest.mark.parametrize("method", ["fafi", "aurora", "dual_head", "align_uniform", "fedavg", "fedetf", "fedproto"])
@pytest.mark.parametrize("validation", [0.0, 0.4])
def test_08_small_and_single_class_clients(
    method: str, validation: float, quick: Quick, divided: Callable[..., str], seen: list[Seen]
) -> None:
    file = divided((0, (0,)), (1, (3,)), (2, (1, 2)), (3, (7,)), (20, (5,)), (17, (6, 7)))
    record = run(quick(method, clients=6, partition_file=file, batch_size=8, epochs=1, validation=validation))
    reasons = [client.skipped for client in record.clients]
    assert reasons[:2] == ["no samples", "1 sample: BatchNorm needs two"]
    assert reasons[2] == ("1 sample: BatchNorm needs two" if validation else None)
    assert reasons[3:] == [None, None, None]
    assert all((c.upload_sha256 is None) == (c.skipped is not None) for c in record.clients)
    assert 0 <= record.final.accuracy <= 1 and math.isfinite(record.final.nll)
    assert min(len(batch.images) for batch in seen if batch.training) >= 2 * 2  # two images in two views


def test_08_a_federation_of_nobody_is_refused(quick: Quick, divided: Callable[..., str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none of the 2 clients holds two samples"):
        run(quick("fafi", clients=2, partition_file=divided((0, (0,)), (1, (3,)))), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# 9. Gradient clipping of the encoder is not coupled to the weighting's parameters; the coupling is available.


@pytest.mark.parametrize("method", ["etf_uncertainty", "etf_annealed_uncertainty", "etf_decoupled", "aurora"])
def test_09_lambda_does_not_slow_the_encoder_down(method: str, quick: Quick) -> None:
    def encoder_after_one_step(start: float, scope: str) -> Tensor:
        options = {"start.minimum": start, "start.maximum": start}
        spec = quick(method, options, epochs=1, batch_size=64, clip_scope=scope)
        parameters = train_alone(prepare(spec), 0).encoder.parameters()
        return torch.cat([p.detach().flatten() for p in parameters])

    apart, together = ([encoder_after_one_step(start, scope) for start in (1.0, 1e5)] for scope in ("group", "joint"))
    moved = (together[0] - together[1]).norm()
    assert (apart[0] - apart[1]).norm() < 1e-4 * moved
    assert moved > 1e-2
    assert make_spec(method=method).clip_scope == "group"


# 10. Compared methods share partition, initial weights, augmentation and epochs.


def test_10_methods_share_partition_initial_weights_and_views(quick: Quick, seen: list[Seen]) -> None:
    names = ("fafi", "aurora", "gated_supcon", "dual_head", "fedavg", "fedetf")
    settings = [prepare(make_spec(method=name, clients=3, epochs=1, batch_size=16)) for name in names]
    assert len({setting.partition.fingerprint for setting in settings}) == 1
    encoders = [ready(setting, number).model.encoder.state_dict() for setting in settings for number in (0, 2)]
    for state in encoders[1:]:
        assert all(torch.equal(tensor, encoders[0][name]) for name, tensor in state.items())
    first: list[list[Tensor]] = []
    for name in names:
        seen.clear()
        train_alone(prepare(quick(name, epochs=1)), 0)
        first.append([batch.images[:32] for batch in seen if batch.training][:2])  # two views of two batches of 16
    assert all(torch.equal(a, b) for read in first[1:] for a, b in zip(first[0], read, strict=True))
    assert not torch.equal(*first[0])


def test_10_another_seed_is_another_run(quick: Quick, seen: list[Seen]) -> None:
    one, two = (prepare(make_spec(method="fafi", clients=3, seed=seed)) for seed in (1, 2))
    assert one.partition.fingerprint != two.partition.fingerprint
    weights = [ready(setting).model.state_dict()["encoder.stem.conv.weight"] for setting in (one, two)]
    assert not torch.equal(*weights)


def test_10_prototype_methods_start_from_the_same_prototypes(quick: Quick) -> None:
    settings = [prepare(quick(name)) for name in ("fafi", "etf", "aurora", "raw_supcon")]
    heads = [ready(setting, number).model.head.prototypes for setting in settings for number in range(3)]
    assert all(torch.equal(head, heads[0]) for head in heads)


# 11. A study reports mean and deviation over at least 3 seeds with paired differences; one seed is called one seed.


def test_11_mean_and_sample_deviation() -> None:
    found = summarise([0.5, 0.7, 0.9])
    assert (found.mean, found.std, found.n) == (pytest.approx(0.7), pytest.approx(0.2), 3)
    assert percent(found) == "70.0 ± 20.0"


def test_11_one_seed_is_called_one_seed() -> None:
    assert summarise([0.7]).std is None
    assert percent(summarise([0.7])) == "70.0 (1 seed)"
    assert "2 seeds" in percent(summarise([0.7, 0.8]))
    assert "1 seed" in points(paired_difference({1: 0.7}, {1: 0.6}))


def test_11_differences_are_paired_by_seed() -> None:
    a, b = {1: 0.30, 2: 0.60, 3: 0.90}, {3: 0.88, 2: 0.59, 1: 0.27, 4: 0.0}
    found = paired_difference(a, b)
    assert found.n == 3 and found.mean == pytest.approx(0.02)
    # s = 0.01, t(0.975, 2) = 4.302653
    assert found.low is not None and found.high is not None
    assert found.low == pytest.approx(0.02 - 4.302653 * 0.01 / math.sqrt(3), abs=1e-6)
    assert found.high == pytest.approx(0.02 + 4.302653 * 0.01 / math.sqrt(3), abs=1e-6)
    assert paired_difference({1: 0.5}, {2: 0.5}).mean is None


# An upload does not depend on the other clients' data.


def sha256(folder: RunFolder, number: int) -> str:
    return parse(folder.upload(number).read_bytes()).sha256


@pytest.mark.parametrize("method", ["fafi", "aurora", "dual_head", "fedavg", "fedetf", "fedproto"])
def test_an_upload_does_not_depend_on_what_the_others_hold(
    method: str, quick: Quick, finished: FinishedRun, tmp_path: Path
) -> None:
    setting = prepare(quick(method))
    mine = torch.from_numpy(setting.partition.indices[0])
    images = torch.randint_like(setting.data.train.images, 256)
    images[mine] = setting.data.train.images[mine]
    labels = setting.data.train.labels.roll(1)
    labels[mine] = setting.data.train.labels[mine]
    strangers = replace(setting, data=replace(setting.data, train=Labelled(images, labels)))
    for number in (0, 1):
        train_client(strangers, number, RunFolder(tmp_path), lambda epoch: None)
    original = finished(quick(method)).folder
    assert sha256(RunFolder(tmp_path), 0) == sha256(original, 0)
    assert sha256(RunFolder(tmp_path), 1) != sha256(original, 1)


def test_an_upload_does_not_depend_on_who_else_takes_part(
    quick: Quick, finished: FinishedRun, divided: Callable[..., str]
) -> None:
    alone = finished(quick("aurora", clients=1, partition_file=divided((40, range(6)))))
    assert alone.uploads[0] == finished(quick("aurora")).uploads[0]
