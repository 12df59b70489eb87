"""What only a GPU can show: captured steps, lanes and fused kernels change nothing but the time."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedshot.departure import Departure
from fedshot.engines.job import Watch
from fedshot.experiment import Execution, run
from fedshot.local import at_server, work
from fedshot.local.at_server import ServerTraining, trained_at_server
from fedshot.local.objective import Objective
from fedshot.local.statistics import encode, evidence_of, nearest_mean_agreement
from fedshot.local.telemetry import Row
from fedshot.local.train import Bench, steps
from fedshot.local.work import departure_of
from fedshot.method import Client, Views
from fedshot.methods import METHODS
from fedshot.methods.terms import CLASSIFICATION
from fedshot.models import Classifier
from fedshot.models.copies import frozen_copy
from fedshot.prepare import prepare
from fedshot.record import Record
from fedshot.sections import Evidence
from fedshot.spec import Spec, make_spec
from fedshot.store import RunFolder
from fedshot.upload import parse

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

Quick = Callable[..., Spec]


def uploads(spec: Spec, folder: Path, **how: object) -> tuple[Record, list[dict[str, Tensor]]]:
    record = run(spec, folder, Execution(device="cuda:0", **how))  # type: ignore[arg-type]
    files = [RunFolder(folder).upload(client.id) for client in record.clients]
    return record, [parse(file.read_bytes()).section("weights") for file in files]


def largest_difference(one: list[dict[str, Tensor]], other: list[dict[str, Tensor]]) -> float:
    pairs = [(a[name].float(), b[name].float()) for a, b in zip(one, other, strict=True) for name in a]
    return max(float((a - b).abs().max()) for a, b in pairs)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_captured_and_comes_out_the_same(method: str, quick: Quick, tmp_path: Path) -> None:
    spec = quick(method, epochs=4, evaluate_at=(2, 4), precision="fp32", lr=0.01, validation=0.1)
    record, fast = uploads(spec, tmp_path / "fast", lanes=3)
    assert [client.not_captured for client in record.clients] == [None] * 3
    assert [client.skipped for client in record.clients] == [None] * 3 and len(record.curve) == 2
    _, plain = uploads(spec, tmp_path / "plain", lanes=1, captured=False, fused=False)
    assert largest_difference(fast, plain) < 2e-2
    _, start = uploads(spec.model_copy(update={"epochs": 1, "evaluate_at": (1,)}), tmp_path / "one", lanes=1)
    assert largest_difference(fast, start) > 4e-2  # so that the bound above says something


@pytest.mark.parametrize(
    "habit",
    [{"draws": "batch"}, {"normalisation": "twice"}, {"momentum_epochs": 1}],
    ids=lambda habit: next(iter(habit)),
)
def test_habits_of_published_code_come_out_the_same(habit: dict[str, Any], quick: Quick, tmp_path: Path) -> None:
    spec = quick("fafi", epochs=4, precision="fp32", lr=0.01, augmentation="natural", **habit)
    record, fast = uploads(spec, tmp_path / "fast", lanes=3)
    assert [client.not_captured for client in record.clients] == [None] * 3
    _, plain = uploads(spec, tmp_path / "plain", lanes=1, captured=False, fused=False)
    assert largest_difference(fast, plain) < 2e-2
    _, without = uploads(quick("fafi", epochs=4, precision="fp32", lr=0.01, augmentation="natural"), tmp_path / "sound")
    assert largest_difference(fast, without) > 4e-2  # so that the bound above says something


def test_lanes_do_not_touch_each_other(quick: Quick, tmp_path: Path) -> None:
    spec = quick("aurora", epochs=5, precision="fp32", lr=1e-3)
    _, one = uploads(spec, tmp_path / "one", lanes=1)
    _, three = uploads(spec, tmp_path / "three", lanes=3)
    assert largest_difference(one, three) < 2e-3


def test_what_the_server_trains_is_captured_too(quick: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
    benches: list[Bench] = []

    class Kept(Bench):
        def __init__(self) -> None:
            super().__init__()
            benches.append(self)

    monkeypatch.setattr(at_server, "Bench", Kept)
    client = prepare(quick("fafi"), None, "cuda:0").client(0)
    assert isinstance(client, Client)
    outside, tries = torch.cuda.current_stream(), torch.backends.cudnn.benchmark
    plain = replace(client.task, augmentation="none")
    how = ServerTraining(passes=30, cosine=True)
    model = trained_at_server(client.model, client.train, plain, Objective((CLASSIFICATION,)), Views(1), how)
    right = model(plain.prepare(client.train.images)).argmax(1) == client.train.labels
    assert right.float().mean() > 0.9
    assert [bench.refusal for bench in benches] == [None] and benches[0]._capture is not None
    assert torch.cuda.current_stream() == outside and torch.backends.cudnn.benchmark == tries


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_client_that_takes_over_captured_steps_is_what_it_is_alone(optimizer: str, quick: Quick) -> None:
    rate = 1e-3
    spec = quick("etf_entropy", epochs=5, precision="fp32", lr=rate, optimizer=optimizer)
    setting = prepare(spec, None, "cuda:0")
    shared, taken_over = Bench(), []

    def trained(number: int, bench: Bench) -> dict[str, Tensor]:
        client = setting.client(number)
        assert isinstance(client, Client)
        end: dict[str, Tensor] = {}

        def at_epoch(epoch: int, model: Classifier | None, row: Row) -> None:
            if model is not None:
                end.update({name: tensor.clone() for name, tensor in model.state_dict().items()})
                eager = encode(client, model, client.train)
                assert (bench.features(client, model) - eager).abs().max() < 1e-2 * eager.abs().max()

        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in steps(
                client,
                setting.method.objective(client),
                setting.method.views,
                setting.spec,
                at_epoch,
                bench,
            ):
                pass
            taken_over.append(bench._training is not None and bench._training.client.model is not client.model)
        torch.cuda.synchronize()
        return end

    for number in range(3):
        torch.cuda.synchronize()
        pairs = zip(trained(number, shared).values(), trained(number, Bench()).values(), strict=True)
        apart = torch.cat([(a - b).abs().flatten().float() for a, b in pairs])
        if optimizer == "sgd":
            assert apart.max() < 2 * rate
        else:  # Adam makes steps of the size of the rate from slopes that are nothing but rounding
            assert apart.quantile(0.5) < rate and apart.quantile(0.99) < 50 * rate
    assert taken_over == [False, False, True, False, True, False]


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_the_host_waits_for_nothing_between_two_clients(quick: Quick) -> None:
    setting = prepare(quick("fafi"), None, "cuda:0")

    def between() -> Departure:
        client = setting.client(0, copy=Bench().copy)
        assert isinstance(client, Client)
        still = frozen_copy(client.model)
        nearest_mean_agreement(evidence_of(client, still, setting.sizes))
        return departure_of(setting, client, still, setting.method.statistics)

    between()  # what is made once may wait
    torch.cuda.set_sync_debug_mode("error")
    try:
        upload = between()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert upload.wait().sections >= {"weights", "class_means"}


@pytest.mark.parametrize("method", ["fafi", "aurora"])
def test_the_end_of_clients_of_one_size_is_captured_and_tells_of_each_its_own(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(method=method, clients=14, recipe="iid", epochs=3)
    looked: list[int] = []

    def counted(client: Client, *rest: Any) -> Evidence:
        looked.append(client.id)
        return evidence_of(client, *rest)

    monkeypatch.setattr(work, "evidence_of", counted)
    record = run(spec, tmp_path, Execution(device="cuda:0", lanes=1))
    sizes = {client.samples for client in record.clients}
    assert len(looked) == 4 * len(sizes) < 14, "three clients of a size as they come, the next one captured"
    setting = prepare(spec, None, "cuda:0")
    for number in range(14):
        client, upload = setting.client(number), parse(RunFolder(tmp_path).upload(number).read_bytes())
        assert isinstance(client, Client)
        client.model.load_state_dict(upload.section("weights"))
        evidence = evidence_of(client, client.model.eval(), setting.sizes)
        told = upload.section("class_means")["means"].to(evidence.features)
        assert (told - evidence.class_means).abs().max() < 1e-2 * evidence.class_means.abs().max()


READS_BACK = """
from dataclasses import replace

from fedshot.local.objective import Objective, Term
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import FAFI_TERMS


def reads_back() -> Method:
    def objective(client: Client) -> Objective:
        return Objective(base=(*FAFI_TERMS, Term("late", lambda step: step.logits.mean() * step.logits.mean().item())))

    return replace(fafi(), name="reads_back", objective=objective)
"""


def test_a_method_that_cannot_be_captured_runs_all_the_same_and_says_so(quick: Quick, tmp_path: Path) -> None:
    (tmp_path / "variant.py").write_text(READS_BACK)
    spec = quick(str(tmp_path / "variant.py"), epochs=4, precision="fp32", lr=0.01)
    record, fast = uploads(spec, tmp_path / "fast", lanes=3)
    assert all("captur" in (client.not_captured or "") for client in record.clients), record.clients[0].not_captured
    _, plain = uploads(spec, tmp_path / "plain", lanes=1, captured=False, fused=False)
    assert largest_difference(fast, plain) < 2e-2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shape", [(64, 64, 32, 32), (7, 20, 3, 3), (128, 512, 4, 4), (2, 130, 9, 9)])
def test_fused_norm_is_torch_s(shape: tuple[int, ...], relu: bool, added: bool, dtype: torch.dtype) -> None:
    from fedshot.kernels.norm import norm_add_relu

    generator = torch.Generator("cuda").manual_seed(1)

    def draw() -> Tensor:
        drawn = torch.randn(shape, generator=generator, device="cuda")
        return (2 * drawn + 3).to(dtype).contiguous(memory_format=torch.channels_last)

    x, other, slope = draw(), draw() - 3, draw() - 3
    found = []
    for fused in (False, True):
        norm = nn.BatchNorm2d(shape[1]).cuda()
        with torch.no_grad():
            norm.weight.copy_(torch.linspace(0.5, 2, shape[1]))
        inputs = [t.clone().requires_grad_() for t in (x, other)]
        if fused:
            y = norm_add_relu(inputs[0], norm, inputs[1] if added else None, relu)
        else:
            y = norm(inputs[0].float()) + (inputs[1].float() if added else 0)
            y = y.relu() if relu else y
        (y.float() * slope).sum().backward()
        grads = [t.grad for t in (*inputs[: 1 + added], norm.weight, norm.bias)]
        found.append([y.detach(), *grads, norm.running_mean, norm.running_var])
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    for ours, theirs in zip(found[1], found[0], strict=True):
        gap = (ours.float() - theirs.float()).norm() / theirs.float().norm()
        assert gap < tolerance


def test_a_client_too_large_for_the_gpu_says_so(quick: Quick, tmp_path: Path) -> None:
    torch.cuda.empty_cache()
    _, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**26) / total)
    try:
        with pytest.raises(Exception, match="does not fit the memory of cuda:0"):
            run(quick("fafi", encoder="resnet50", epochs=1), tmp_path / "run", Execution(device="cuda:0"), Watch())
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
