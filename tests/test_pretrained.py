"""Encoders that were trained before: where their weights may come from, and whom they fit."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from fedshot.another_rule import keep_rule
from fedshot.cli import main
from fedshot.errors import UserError
from fedshot.execution import Execution
from fedshot.experiment import run
from fedshot.federation.holdings import client_setting
from fedshot.federation.order import make_order
from fedshot.federation.share import write_shares
from fedshot.federation.site import SiteFile
from fedshot.local.common import common_statistics
from fedshot.method import Client
from fedshot.models import ENCODERS
from fedshot.models.look import common_look
from fedshot.prepare import prepare
from fedshot.pretrained import open_pretrained
from fedshot.server import fuse_again
from fedshot.setting import Setting
from fedshot.spec import Spec, make_spec
from fedshot.store import RunFolder, read_spec
from fedshot.study.grid import Cell
from fedshot.study.plan import make_plan
from fedshot.upload import parse

Make = Callable[..., Any]
SHAPE = (3, 8, 8)


@pytest.fixture
def weights(tmp_path: Path) -> Callable[[dict[str, Tensor]], str]:
    """The name of a file with these tensors."""

    def write(tensors: dict[str, Tensor]) -> str:
        file = tmp_path / "weights.safetensors"
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file)
        return str(file)

    return write


def state(name: str, seed: int = 7, shape: tuple[int, int, int] = SHAPE) -> dict[str, Tensor]:
    """An encoder's entries, other ones for every seed, its moments too."""
    entries = ENCODERS[name](shape, "batch").state_dict()
    generator = torch.Generator().manual_seed(seed)
    return {key: torch.rand(t.shape, generator=generator) if t.is_floating_point() else t for key, t in entries.items()}


def as_torchvision(stages: tuple[int, ...], convolutions: int) -> list[tuple[str, str]]:
    """A residual network's layers as torchvision calls them and as they are called here, typed by hand."""
    pairs = [("conv1", "stem.conv"), ("bn1", "stem.norm")]
    for stage, blocks in enumerate(stages):
        for block in range(blocks):
            there, here = f"layer{stage + 1}.{block}", f"stages.{stage}.{block}"
            for number in range(convolutions):
                pairs += [(f"{there}.conv{number + 1}", f"{here}.body.{number}.conv")]
                pairs += [(f"{there}.bn{number + 1}", f"{here}.body.{number}.norm")]
            if block == 0 and (stage > 0 or convolutions == 3):
                pairs += [(f"{there}.downsample.0", f"{here}.shortcut.conv")]
                pairs += [(f"{there}.downsample.1", f"{here}.shortcut.norm")]
    return pairs


def test_clients_start_from_the_encoder_of_a_run_and_from_a_head_of_their_own(
    quick: Make, tmp_path: Path, digits: Any
) -> None:
    earlier = make_spec(method="fafi", clients=1, recipe="iid", epochs=1, seed=5, upload_precision="int8")
    run(earlier, tmp_path / "earlier")
    sent = parse((tmp_path / "earlier" / "clients" / "0" / "upload.safetensors").read_bytes()).section("weights")
    here = prepare(quick("fafi", pretrained=str(tmp_path / "earlier"))).initial_model.state_dict()
    plain = prepare(quick("fafi")).initial_model.state_dict()
    assert here.keys() == plain.keys()
    for name, tensor in here.items():
        assert torch.equal(tensor, (sent if name.startswith("encoder.") else plain)[name]), name


@pytest.mark.parametrize("method", ["fafi", "etf_uncertainty", "fedavg", "dual_head"])
def test_weights_as_the_seed_draws_them_change_nothing(
    method: str, quick: Make, finished: Make, weights: Make, tmp_path: Path
) -> None:
    spec = quick(method, epochs=1, validation=0.2)
    drawn = weights(dict(prepare(spec).initial_model.encoder.state_dict()))
    again = run(spec.model_copy(update={"pretrained": drawn}), tmp_path / "run")
    assert [c.upload_sha256 for c in again.clients] == finished(spec).uploads
    assert again.final == finished(spec).record.final


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("prefix", ["", "encoder.", "module.", "module.encoder."])
def test_every_encoder_is_read_whatever_stands_before_its_names(name: str, prefix: str, weights: Make) -> None:
    entries = state(name)
    file = weights({**{prefix + key: t for key, t in entries.items()}, f"{prefix}fc.weight": torch.zeros(3, 3)})
    encoder = ENCODERS[name](SHAPE, "batch")
    open_pretrained(file).into(encoder)
    assert all(torch.equal(tensor, entries[key]) for key, tensor in encoder.state_dict().items())


@pytest.mark.parametrize(
    ("name", "stages", "convolutions"),
    [("resnet18", (2, 2, 2, 2), 2), ("resnet34", (3, 4, 6, 3), 2), ("resnet50", (3, 4, 6, 3), 3)],
)
def test_residual_networks_under_the_names_of_torchvision(
    name: str, stages: tuple[int, ...], convolutions: int, weights: Make
) -> None:
    entries, renamed = state(name), {}
    for there, here in as_torchvision(stages, convolutions):
        for what in ("weight", "bias", "running_mean", "running_var"):  # older files do not count batches
            if f"{here}.{what}" in entries:
                renamed[f"{there}.{what}"] = entries[f"{here}.{what}"]
    assert len(renamed) == sum("num_batches_tracked" not in key for key in entries)
    encoder = ENCODERS[name](SHAPE, "batch")
    open_pretrained(weights(renamed | {"fc.weight": torch.zeros(10, 512), "fc.bias": torch.zeros(10)})).into(encoder)
    for key, tensor in encoder.state_dict().items():
        assert key.endswith("num_batches_tracked") or torch.equal(tensor, entries[key]), key


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("resnet34", "stages.0.2.body.0.conv.weight is among them, which this encoder has not; they must be of the"),
        ("cnn", "stages.0.0.body.0.conv.weight is not among them (the first is "),
        ("another", "stem.conv.weight is 64×1×3×3 there and 64×3×3×3 here; they must be of the same --encoder"),
    ],
)
def test_weights_of_another_encoder_are_refused(given: str, says: str, weights: Make) -> None:
    entries = state("resnet18", shape=(1, 8, 8)) if given == "another" else state(given)
    with pytest.raises(UserError, match="do not fit") as error:
        open_pretrained(weights(entries)).into(ENCODERS["resnet18"](SHAPE, "batch"))
    assert says in str(error.value)


def test_of_two_networks_in_one_file_none_is_taken_for_the_other(weights: Make) -> None:
    entries = state("cnn")
    other = {f"encoder.{name}": tensor + 1 for name, tensor in state("cnn").items()}
    for more in (other, {"optimizer.step": torch.zeros(1)}):
        with pytest.raises(UserError, match="do not fit"):
            open_pretrained(weights(entries | more)).into(ENCODERS["cnn"](SHAPE, "batch"))
    beside = {"backbone." + name: tensor for name, tensor in entries.items()} | {"projector.0.weight": torch.zeros(2)}
    encoder = ENCODERS["cnn"](SHAPE, "batch")
    open_pretrained(weights(beside)).into(encoder)
    assert torch.equal(encoder.state_dict()["stem.conv.weight"], entries["stem.conv.weight"])


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("stem.conv.weight", lambda t: t.to(torch.int8), "is of int8, which is no weight"),
        ("stem.conv.weight", lambda t: t.to(torch.complex64), "is of complex64, which is no weight"),
        ("stem.norm.running_var", lambda t: -t, "has variances below 0"),
    ],
)
def test_values_that_cannot_be_weights_are_refused(name: str, change: Callable, says: str, weights: Make) -> None:
    entries = state("cnn")
    with pytest.raises(UserError, match=f"{name} {says}"):
        open_pretrained(weights(entries | {name: change(entries[name])})).into(ENCODERS["cnn"](SHAPE, "batch"))


def test_a_study_can_be_asked_again_when_the_original_has_gone(
    quick: Make, weights: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path(weights(state("cnn", shape=(1, 8, 8))))
    file.rename("kept.safetensors")
    specs = [quick(method, epochs=1, pretrained="kept.safetensors") for method in ("fafi", "etf")]
    cells = [Cell({"method": spec.method, "seed": spec.seed}, spec) for spec in specs]
    for planned in make_plan(cells[:1], tmp_path / "study", None):
        run(planned.spec, planned.folder)
    Path("kept.safetensors").unlink()
    (again,) = make_plan(cells[:1], tmp_path / "study", None)
    assert again.state == "done"
    with pytest.raises(UserError, match=r"kept.safetensors cannot be read"):
        make_plan(cells, tmp_path / "study", None)


def test_what_is_no_file_of_weights_is_told_before_anything_is_written(
    quick: Make, finished: Make, weights: Make, tmp_path: Path
) -> None:
    several = finished(quick("fafi")).folder.path
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    pickled = tmp_path / "weights.pt"
    torch.save({"stem": torch.zeros(1)}, pickled)
    infinite = {key: t / 0 if key == "stem.norm.weight" else t for key, t in state("cnn", shape=(1, 8, 8)).items()}
    for given, says in (
        (tmp_path / "nowhere", "No such file or directory; pretrained takes a run of one client, or a file of weights"),
        (unfinished, "is not a run that has ended"),
        (several, "clients: name one, as "),
        (pickled, "is no file of safetensors; weights of PyTorch become one by"),
        (weights(infinite), "stem.norm.weight has values that are not finite"),
    ):
        with pytest.raises(UserError) as error:
            run(quick("fafi", pretrained=str(given)), tmp_path / "run")
        assert says in str(error.value) and "\n" not in str(error.value)
        assert not (tmp_path / "run").exists()
    one = several / "clients" / "0" / "upload.safetensors"
    assert prepare(quick("fafi", pretrained=str(one))).spec.pretrained == str(one)


def test_other_weights_under_the_same_name_make_another_run(quick: Make, weights: Make, tmp_path: Path) -> None:
    entries = state("cnn", shape=(1, 8, 8))
    spec = prepare(quick("fafi", pretrained=weights(entries))).spec
    assert spec.pretrained and len(spec.files[spec.pretrained]) == 64
    assert "pretrained" not in prepare(quick("fafi")).spec.model_dump()  # the hash of older runs stays
    weights(state("cnn", seed=8, shape=(1, 8, 8)))
    with pytest.raises(UserError, match="has changed since this run began"):
        prepare(spec)
    again = prepare(quick("fafi", pretrained=spec.pretrained))
    assert again.spec.sha256 != spec.sha256
    drawn = dict(again.initial_model.encoder.state_dict())
    assert torch.equal(drawn["stem.conv.weight"], state("cnn", seed=8, shape=(1, 8, 8))["stem.conv.weight"])


def test_clients_of_recommended_tell_of_what_the_encoder_that_they_start_from_sees(
    quick: Make, weights: Make, tmp_path: Path
) -> None:
    entries = state("cnn", shape=(1, 8, 8))
    spec = quick("recommended", epochs=1, validation=0.2, pretrained=weights(entries))
    record = run(spec, tmp_path / "run")
    setting = prepare(spec)
    client = setting.client(0)
    assert isinstance(client, Client)
    sent = parse((tmp_path / "run" / "clients" / "0" / "upload.safetensors").read_bytes()).section("common")
    look = common_look(setting.task, sent["means"].shape[1], torch.device("cpu"))
    expected = common_statistics(client.train.images, client.train.labels, 10, look)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in sent.items())
    (tmp_path / "one").mkdir()
    plain = run(spec.model_copy(update={"pretrained": None}), tmp_path / "one" / "run")
    assert record.cost.upload_bytes == plain.cost.upload_bytes


def test_a_client_of_a_federation_starts_from_its_own_copy(three_clients: str, weights: Make, tmp_path: Path) -> None:
    entries = state("cnn", shape=(1, 8, 8))
    asked = make_spec(
        method="fafi", clients=3, partition_file=three_clients, epochs=1, batch_size=16, pretrained=weights(entries)
    )
    setting = prepare(asked)
    order = make_order(setting, "train", "a run")
    mine = write_shares(setting.data, setting.partition, tmp_path / "shares")[1]
    site = SiteFile(name="second", number=1, data=str(mine))
    with pytest.raises(UserError, match=r"the job needs the file .*weights.safetensors .*name it under \"files\""):
        client_setting(site, order)
    copy = tmp_path / "mine.safetensors"
    copy.write_bytes(Path(str(asked.pretrained)).read_bytes())
    Path(str(asked.pretrained)).unlink()
    found = client_setting(site.model_copy(update={"files": (copy,)}), order).initial_model.state_dict()
    assert all(torch.equal(tensor, found[f"encoder.{name}"]) for name, tensor in entries.items())


def test_the_command_line_says_from_what_clients_started(
    weights: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, out = weights(state("cnn", shape=(1, 8, 8))), tmp_path / "runs"
    started = ["--pretrained", given, "--epochs", "1"]
    for words in (["compare", "fafi", "fedavg", "--seeds", "1", "--out", str(out)], ["run", "fafi"]):
        with pytest.raises(SystemExit) as end:
            main([*words, *started, *(["--out", str(tmp_path / "run")] if words[0] == "run" else [])])
        assert end.value.code == 0
        said = "".join(capsys.readouterr().out.split())
        assert words[0] == "compare" or f"·pretrained:{given}·" in said
    assert f"pretrained: {given}" in (out / "report.md").read_text()


def test_a_spec_with_weights_is_typed_as_it_is_asked(quick: Make, weights: Make) -> None:
    from fedshot.explain.commands import typed

    spec: Spec = quick("fafi", pretrained=weights(state("cnn", shape=(1, 8, 8))))
    assert typed(spec, {"pretrained": spec.pretrained}) == ["--pretrained", spec.pretrained]


def test_a_run_keeps_what_its_clients_started_from(
    quick: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(make_spec(method="fafi", clients=1, recipe="iid", epochs=1, seed=5), tmp_path / "earlier")
    monkeypatch.chdir(tmp_path)
    spec, out = quick("recommended", epochs=1, validation=0.2, pretrained="earlier"), tmp_path / "run"
    record = run(spec, out)
    fused = fuse_again(stored(out), RunFolder(out), ["routed", "common"], [])
    (tmp_path / "elsewhere").mkdir()
    for move in (lambda: monkeypatch.chdir(tmp_path / "elsewhere"), lambda: (tmp_path / "earlier").rename("gone")):
        move()
        assert fuse_again(stored(out), RunFolder(out), ["routed", "common"], []) == fused
        assert keep_rule(RunFolder(out), "common", tmp_path / f"{move}").final.accuracy == accuracy_of(fused, "common")
    (out / "record.json").unlink()
    shutil.rmtree(out / "clients" / "1")
    assert run(spec, out, Execution(resume=True)).result_sha256 == record.result_sha256
    with pytest.raises(UserError, match="earlier cannot be read"):
        run(spec, tmp_path / "anew")
    (out / "pretrained.safetensors").write_bytes(b"other")
    with pytest.raises(UserError, match="is no file of safetensors"):
        stored(out)


def stored(out: Path) -> Setting:
    folder = RunFolder(out)
    return prepare(read_spec(folder.spec), kept=folder.pretrained)


def accuracy_of(rows: list[dict[str, Any]], rule: str) -> float:
    return next(row["accuracy"] for row in rows if row["fusion"] == rule)


@pytest.mark.parametrize(("given", "spelt"), [("runs/a/", "runs/a"), ("./runs/a", "runs/a"), ("none", None)])
def test_a_path_has_one_spelling(given: str, spelt: str | None) -> None:
    assert make_spec(method="fafi", pretrained=given).pretrained == spelt
    with pytest.raises(UserError, match=r"pretrained = .*name a run of one client"):
        make_spec(method="fafi", pretrained=" ")
