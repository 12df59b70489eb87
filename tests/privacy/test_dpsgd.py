"""Training under differential privacy: what one image can do is bounded, what it costs is told, the rest is refused."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("opacus", reason="differential privacy needs fedshot[dp]")

from opacus.accountants import RDPAccountant

from fedshot.errors import UserError
from fedshot.experiment import Execution, run
from fedshot.local.objective import Objective, Step, Term
from fedshot.local.step import Training
from fedshot.local.train import Bench
from fedshot.local.weighting import Weighting, WeightReport
from fedshot.method import Client, Method, Views
from fedshot.methods import METHODS
from fedshot.methods.baselines import fedavg
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CLASSIFICATION
from fedshot.prepare import prepare
from fedshot.privacy.accountant import advantage_bound, spent
from fedshot.privacy.client import training_of
from fedshot.privacy.dpsgd import PrivateBench, PrivateTraining
from fedshot.privacy.separable import check_separable, objective_without_data
from fedshot.setting import Setting
from fedshot.spec import Spec, make_spec
from fedshot.upload import parse

Quick = Callable[..., Spec]
PRIVATE: dict[str, Any] = {"norm": "group", "dp_noise": 1.0, "counts": "withheld", "fusion": "logits"}
EXAMPLE = str(Path(__file__).parents[2] / "examples" / "private_prototypes.py")


def client_of(setting: Setting, number: int = 0) -> Client:
    client = setting.client(number)
    assert isinstance(client, Client)
    return client


def training_at_start(spec: Spec) -> PrivateTraining:
    setting = prepare(spec)
    client = client_of(setting)
    objective, _ = training_of(setting.method, client, setting.spec, (1,) * 10, Bench())
    return PrivateTraining(client, objective, setting.method.views, setting.spec)


@pytest.fixture(scope="module")
def trained(quick: Quick, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A private run, made once."""
    out = tmp_path_factory.mktemp("private") / "run"
    return out, run(quick("fedavg", validation=0.2, **PRIVATE), out)


# the mechanism


def test_without_noise_and_clipping_a_step_is_a_step_of_the_mean_gradient(quick: Quick) -> None:
    """The reduction: every image drawn, a clip that binds nobody, hardly any noise: plain SGD on the same views."""
    spec = quick("fedavg", **{**PRIVATE, "dp_noise": 1e-14, "dp_clip": 1e6}, batch_size=40, clip=0.0)
    private = training_at_start(spec)
    plain = Training(client_of(prepare(spec)), Objective(base=(CLASSIFICATION,)), Views(), prepare(spec).spec)
    plain.order.copy_(torch.arange(40))  # views are drawn in the order of the images
    plain.place.zero_()
    private.step(40)
    plain.step(40)
    for ours, theirs in zip(private.client.model.parameters(), plain.client.model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=2e-6)


def test_no_image_moves_a_step_by_more_than_the_clip(quick: Quick) -> None:
    """With one image replaced by another, the sum of clipped gradients moves by at most twice the clip."""
    spec = quick("fedavg", **{**PRIVATE, "dp_noise": 1e-9, "dp_clip": 0.01}, batch_size=40)
    sums = []
    for odd in (False, True):
        training = training_at_start(spec)
        if odd:
            training.images[0] = 255 - training.images[0]
            training.labels[0] = (training.labels[0] + 1) % 10
        chosen = torch.arange(40)
        training._noisy.zero_grad(set_to_none=True)
        training._accumulate(chosen)
        sums.append(torch.cat([p.summed_grad.flatten() for p in training._learned.values()]))
    assert 0 < float((sums[0] - sums[1]).norm()) <= 2 * 0.01 * (1 + 1e-4)
    assert float(sums[0].norm()) <= 40 * 0.01


def test_an_image_is_the_unit_with_all_its_views(quick: Quick) -> None:
    """One gradient for each image, not for each view."""
    training = training_at_start(quick("fedavg", **PRIVATE))
    training._accumulate(torch.arange(7))
    assert {p.grad_sample.shape[0] for p in training._learned.values()} == {7}  # type: ignore[attr-defined]


def test_noise_has_the_deviation_that_is_accounted(quick: Quick) -> None:
    training = training_at_start(quick("fedavg", **{**PRIVATE, "dp_noise": 2.0, "dp_clip": 0.5}))
    training._nothing()
    training._noisy.add_noise()
    noise = torch.cat([p.grad.flatten() for p in training._learned.values() if p.grad is not None])
    assert float(noise.std()) == pytest.approx(2.0 * 0.5, rel=0.02)
    assert abs(float(noise.mean())) < 0.02


def test_a_step_without_images_is_noise_alone(quick: Quick) -> None:
    training = training_at_start(quick("fedavg", **PRIVATE))
    training.sample_rate = 0.0
    before = [p.detach().clone() for p in training._learned.values()]
    training.step(16)
    assert any(not torch.equal(a, b) for a, b in zip(before, training._learned.values(), strict=True))
    assert int(training.done) == 1


def test_images_are_drawn_for_themselves(quick: Quick) -> None:
    """Poisson sampling: the number of images in a step varies, and its mean is the batch size."""
    training = training_at_start(quick("fedavg", **PRIVATE))
    drawn = torch.stack([training._source.uniform(40) <= training.sample_rate for _ in range(400)])
    assert float(drawn.float().mean()) == pytest.approx(16 / 40, abs=0.02)
    assert len(set(drawn.sum(1).tolist())) > 5


# the run


def test_a_private_run_is_decided_by_its_seed(trained: tuple[Path, Any], quick: Quick) -> None:
    again = run(quick("fedavg", validation=0.2, **PRIVATE), execution=Execution(workers=2))
    assert again.result_sha256 == trained[1].result_sha256
    other = run(quick("fedavg", validation=0.2, **PRIVATE, seed=2))
    assert {c.upload_sha256 for c in other.clients}.isdisjoint(c.upload_sha256 for c in again.clients)


def test_system_noise_is_another_each_time(quick: Quick) -> None:
    spec = quick("fedavg", **PRIVATE, noise_source="system", epochs=1)
    first, second = run(spec), run(spec)
    assert {c.upload_sha256 for c in first.clients}.isdisjoint(c.upload_sha256 for c in second.clients)
    assert first.privacy is not None and first.privacy.warning is None
    assert first.privacy.clients[0].spent is not None and first.privacy.clients[0].spent.noise_source == "system"


def test_the_record_gives_every_clients_guarantee(trained: tuple[Path, Any]) -> None:
    record = trained[1]
    assert record.privacy.warning.startswith("the noise is drawn from the seed")
    for client, training_images in zip(record.privacy.clients, (32, 26, 14), strict=True):
        found, steps_taken = client.spent, 2 * math.ceil(training_images / 16)
        rate = min(1.0, 16 / training_images)
        assert (found.delta, found.noise, found.clip, found.accountant) == (1e-5, 1.0, 1.0, "rdp")
        assert (found.steps, found.sample_rate) == (steps_taken, rate)
        accountant = RDPAccountant()
        for _ in range(steps_taken):
            accountant.step(noise_multiplier=1.0, sample_rate=rate)
        assert found.epsilon == pytest.approx(accountant.get_epsilon(1e-5))
    told = json.loads((trained[0] / "record.json").read_text())
    assert told["privacy"]["clients"][0]["spent"]["epsilon"] == record.privacy.clients[0].spent.epsilon


def test_nothing_of_the_images_leaves_without_noise(trained: tuple[Path, Any]) -> None:
    out = trained[0]
    for number in range(3):
        upload = parse((out / "clients" / str(number) / "upload.safetensors").read_bytes())
        assert upload.sections == {"weights"}
        assert upload.header.validation_accuracy is None
        assert upload.header.counts == "withheld" and len(set(upload.header.class_counts)) == 1
    for line in (out / "telemetry.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert {key for key, value in row.items() if value is not None} <= {"client", "epoch", "prototype_norm"}


def test_noised_counts_are_paid_for(quick: Quick) -> None:
    spec = quick("fedetf", **{**PRIVATE, "counts": "noised:0.5"}, epochs=1)
    record = run(spec)
    assert record.privacy is not None
    for client in record.privacy.clients:
        assert client.spent is not None and client.spent.epsilon_counts == 0.5
        alone = spent(spec.model_copy(update={"counts": "withheld"}), client.spent.sample_rate, client.spent.steps)
        assert client.spent.epsilon == pytest.approx(alone.epsilon + 0.5)


def test_a_private_client_goes_on_from_its_checkpoint(quick: Quick, tmp_path: Path) -> None:
    spec = quick("fedavg", **PRIVATE, epochs=3, evaluate_at=())
    whole = run(spec, tmp_path / "whole", Execution(checkpoint_seconds=0.0))
    kept: dict[str, bytes] = {}

    class Stop(RuntimeError):
        pass

    from fedshot.engines.job import Job, Watch

    class Killer(Watch):
        def epoch(self, job: Job, epoch: int) -> None:
            file = tmp_path / "broken/clients" / str(job.client) / "checkpoint.safetensors"
            if epoch == 3 and file.exists() and not kept:
                kept["client"] = file.read_bytes()
                raise Stop

    with pytest.raises(Stop):
        run(spec, tmp_path / "broken", Execution(checkpoint_seconds=0.0), Killer())
    again = run(spec, tmp_path / "broken", Execution(checkpoint_seconds=0.0, resume=True))
    assert kept and again.result_sha256 == whole.result_sha256


def test_more_noise_costs_less_privacy_and_more_steps_cost_more() -> None:
    def epsilon(noise: float, steps: int) -> float:
        return spent(make_spec(method="fedavg", dp_noise=noise), 0.1, steps).epsilon

    assert epsilon(2.0, 100) < epsilon(1.0, 100) < epsilon(1.0, 400)
    assert advantage_bound(epsilon(1.0, 400), 1e-5) > advantage_bound(epsilon(2.0, 100), 1e-5)
    assert advantage_bound(800.0, 1e-5) == 1.0 and advantage_bound(0.0, 0.01) == 0.01


# what is refused


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"norm": "batch"}, "BatchNorm mixes the images of a batch.*--set norm=group"),
        ({"counts": "exact"}, "exact class counts would leave without noise.*counts=withheld"),
        ({"fusion": "moments"}, "needs the section moments, statistics of images without noise"),
        ({"fusion": "features:prototypes=reliability", "validation": 0.1}, "needs the accuracy on held-out images"),
        ({"method": "balanced_contrast"}, "shows classes equally often"),
        ({"precision": "bf16"}, "in fp32"),
        ({"draws": "batch"}, "every image is drawn for itself"),
        ({"dp_noise": None, "counts": "exact", "dp_clip": 0.5}, "dp_clip does nothing without noise"),
        ({"dp_noise": None, "counts": "withheld", "noise_source": "system"}, "noise_source does nothing without noise"),
    ],
)
def test_settings_that_break_the_guarantee_are_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        prepare(make_spec(**{"method": "fedavg", **PRIVATE, **given}))


SEPARABLE = {"fedavg", "ensemble", "fedproto", "fedetf", "otfusion"}
WITH_A_JOB = {name for name, make in METHODS.items() if make().broadcast is not None}


@pytest.mark.parametrize("name", [name for name in METHODS if name not in WITH_A_JOB])
def test_who_can_be_trained_privately(name: str, quick: Quick) -> None:
    try:
        prepare(quick(name, **PRIVATE)).rehearse()
        assert name in SEPARABLE
    except UserError as refusal:
        assert name not in SEPARABLE
        assert "dp_noise" in str(refusal)


def test_contrast_is_named_as_what_hinders(quick: Quick) -> None:
    with pytest.raises(UserError, match=r"fafi cannot be .*its term 'contrast' compares the images of a batch.*fedavg"):
        prepare(quick("fafi", **PRIVATE)).rehearse()


@pytest.mark.parametrize("name", sorted(WITH_A_JOB - {"split_announced"}))
def test_a_method_with_a_job_is_judged_at_the_client(name: str, quick: Quick) -> None:
    """Its objective exists only with what the server sends; contrast with one's own batch is refused there."""
    setting = prepare(quick(name, **PRIVATE))
    assert setting.method.broadcast is not None
    with pytest.raises(UserError, match="dp_noise"):
        client = setting.client(0, setting.method.broadcast(setting.opening()))
        assert isinstance(client, Client)
        training_of(setting.method, client, setting.spec, (1,) * 10, Bench())


def method_with(value: Callable[[Step], Tensor], weighting: Weighting | None = None) -> Method:
    def objective(client: Client) -> Objective:
        base = (CLASSIFICATION, Term("odd", value))
        return Objective(base) if weighting is None else Objective(base, (CLASSIFICATION,), weighting)

    return replace(fedavg(), name="odd", objective=objective)


class BySquare(Weighting):
    """Not linear in the losses."""

    def forward(self, base: Tensor, align: Tensor, progress: Tensor) -> Tensor:
        return base.square() + align

    def report(self, base: Tensor, align: Tensor, progress: Tensor) -> WeightReport:
        raise NotImplementedError


def test_a_loss_is_tried_and_not_believed(quick: Quick) -> None:
    client = client_of(prepare(quick("fedavg", **PRIVATE)))
    memory = torch.zeros(())

    def remembers(step: Step) -> Tensor:
        memory.add_(1)
        return 0 * step.logits.sum()

    late = method_with(lambda s: (s.progress >= 0.5) * s.features.var(0).sum())
    for method, says in (
        (method_with(lambda s: s.logits.std()), "its term 'odd' compares the images"),
        (late, "its term 'odd' compares the images"),
        (method_with(lambda s: 0 * s.logits.sum(), BySquare()), "losses of the whole batch"),
        (method_with(remembers), "remembers features of earlier steps"),
    ):
        with pytest.raises(UserError, match=says):
            check_separable(method, client, objective_without_data(method, client, (1,) * 10))
    fine = method_with(lambda s: s.unit.square().sum(1).mean() + s.model.head.weight.square().sum())
    check_separable(fine, client, objective_without_data(fine, client, (1,) * 10))


def test_an_objective_never_sees_the_images(quick: Quick) -> None:
    client = client_of(prepare(quick("fedavg", **PRIVATE)))
    seen: list[Client] = []

    def objective(given: Client) -> Objective:
        seen.append(given)
        return Objective(base=(CLASSIFICATION,))

    objective_without_data(replace(fedavg(), objective=objective), client, (2,) * 10)
    assert len(seen[0].train) == 0 and seen[0].validation is None and seen[0].class_counts == (2,) * 10

    def peeks(given: Client) -> Objective:
        return Objective(base=(Term("peek", lambda s, first=given.train.images[0]: first.float().mean()),))

    with pytest.raises(UserError, match="reads the client's images without noise before it trains"):
        objective_without_data(replace(fafi(), objective=peeks), client, (2,) * 10)


def test_prototypes_without_contrast_train_privately(quick: Quick) -> None:
    """The example of the docs: FAFI's head, its server's rule, a loss of single images."""
    record = run(quick(EXAMPLE, **{**PRIVATE, "fusion": "features"}, epochs=1))
    assert record.final.fusion == "features" and record.privacy is not None
    assert all(client.spent is not None for client in record.privacy.clients)


def test_learning_goes_on_under_noise() -> None:
    """Little noise, a few hundred images: far above the tenth that chance would give."""
    spec = make_spec(
        method="fedavg",
        clients=1,
        recipe="iid",
        data="digits:images=300",
        epochs=6,
        lr=0.3,
        **{**PRIVATE, "dp_noise": 0.2},
    )
    assert run(spec).final.accuracy > 0.4


def test_training_leaves_a_plain_bench_alone(quick: Quick) -> None:
    setting = prepare(quick("fedavg"))
    client, bench = client_of(setting), Bench()
    objective, same = training_of(setting.method, client, setting.spec, client.class_counts, bench)
    assert same is bench and len(objective.base) == 1
    private = prepare(quick("fedavg", **PRIVATE))
    _, other = training_of(private.method, client_of(private), private.spec, (1,) * 10, bench)
    assert isinstance(other, PrivateBench)


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(UserError, match=r"dp_noise needs opacus: pip install 'fedshot\[dp\]'"):
        prepare(make_spec(method="fedavg", **PRIVATE))


def test_one_client_of_few_images_trains(divided: Callable[..., str]) -> None:
    """Fewer images than a batch: every one is in every step."""
    spec = make_spec(method="fedavg", clients=1, partition_file=divided((5, (0, 1))), epochs=1, **PRIVATE)
    record = run(spec)
    assert record.privacy is not None and record.privacy.clients[0].spent is not None
    assert record.privacy.clients[0].spent.sample_rate == 1.0
