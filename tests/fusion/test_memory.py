"""The server's memory does not grow with the clients, and no result depends on what is kept and what is read again."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import torch
from torch import Tensor, nn

from fedshot import server
from fedshot.data.dataset import Dataset, Labelled
from fedshot.errors import UserError
from fedshot.evaluate import evaluate_with_members, score
from fedshot.fusion import FUSIONS, Member, Predictor, make_fusion, models_of, without_training
from fedshot.fusion.features import running_moments
from fedshot.fusion.memory import ASKED_BYTES, KEPT_BYTES, Budget, OnDemand
from fedshot.fusion.outputs import outputs_of
from fedshot.local.work import upload_of
from fedshot.method import Client
from fedshot.models import Classifier, PrototypeHead, build
from fedshot.prepare import prepare
from fedshot.server import Reception, fuse_again, receive
from fedshot.setting import Setting
from fedshot.spec import Spec
from fedshot.store import ClientSummary, RunFolder
from fedshot.task import Task
from fedshot.upload import SECTIONS, Upload

MODEL_BYTES = 960_000  # of a CNN for digits, more or less


@pytest.fixture(scope="module")
def setting(quick: Callable[..., Spec]) -> Setting:
    """Three clients with held-out images, scored on 40 test images."""
    found = prepare(quick("fafi", epochs=1, validation=0.2))
    test = Labelled(found.data.test.images[:40], found.data.test.labels[:40])
    return replace(found, data=replace(found.data, test=test))


@pytest.fixture(scope="module")
def folder(setting: Setting, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Uploads as three different clients leave them."""
    found = RunFolder(tmp_path_factory.mktemp("memory"))
    for number in range(3):
        client = setting.client(number)
        assert isinstance(client, Client)
        draw = torch.Generator().manual_seed(number)
        with torch.no_grad():
            for parameter in client.model.parameters():
                parameter.add_(0.02 * torch.randn(parameter.shape, generator=draw))
        write(found, upload_of(setting, client, client.model, SECTIONS))
    return found


def write(folder: RunFolder, upload: Upload) -> None:
    folder.write_upload(upload)
    folder.finish_client(ClientSummary(id=upload.header.client, samples=upload.header.samples), [])


def many(clients: int, setting: Setting, folder: RunFolder, place: Path) -> tuple[Setting, RunFolder]:
    """The same for more clients, each a copy of the first of the three."""
    (first, *_) = receive(setting, folder, ("weights",)).members
    upload, found = first.upload.only(("weights",)), RunFolder(place)
    tensors = {name: tensor.read() for name, tensor in upload.tensors.items()}  # type: ignore[union-attr]
    for number in range(clients):
        write(found, Upload(upload.header.model_copy(update={"client": number}), tensors))
    return replace(setting, spec=setting.spec.model_copy(update={"clients": clients})), found


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many models that were loaded from uploads exist, whenever one is loaded."""
    models: WeakSet[Classifier] = WeakSet()
    counts: list[int] = []
    load = Reception._load

    def counted(self: Reception, upload: Upload) -> Classifier:
        models.add(model := load(self, upload))
        counts.append(len(models))
        return model

    monkeypatch.setattr(Reception, "_load", counted)
    yield counts


def test_live_models_and_answers_do_not_grow_with_the_clients(
    setting: Setting, folder: RunFolder, tmp_path: Path, alive: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    new_empty = Tensor.new_empty

    def counted(tensor: Tensor, *shape: int) -> Tensor:
        made.append((found := new_empty(tensor, *shape)).nbytes)
        return found

    monkeypatch.setattr(Tensor, "new_empty", counted)
    monkeypatch.setitem(KEPT_BYTES, "cpu", 4 * MODEL_BYTES)
    monkeypatch.setitem(ASKED_BYTES, "cpu", 2_000_000)
    test = Labelled(setting.data.test.images[:20], setting.data.test.labels[:20])

    def most(clients: int) -> tuple[int, int]:
        """Models at once, and bytes of answers at once."""
        alive.clear()
        made.clear()
        larger, files = many(clients, setting, folder, tmp_path / str(clients))
        members = receive(larger, files, ("weights",)).members
        make_fusion("average").fuse(members, larger.task)
        fused = make_fusion("batch_moments").fuse(members, larger.task)
        evaluate_with_members(fused, members, test, larger.task)
        assert len(alive) > 2 * clients  # models were loaded again and again
        return max(alive), max(made)

    few, lots = most(8), most(64)
    assert lots[0] == few[0] <= 4 + 2  # the kept ones, the one at work and the next
    assert max(lots[1], few[1]) < 2_000_000


@pytest.mark.parametrize("kept", [0, 2 * MODEL_BYTES])
def test_reloaded_models_answer_as_kept_ones_bit_for_bit(
    kept: int, setting: Setting, folder: RunFolder, alive: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = fuse_again(setting, folder)
    assert len(alive) == 3
    monkeypatch.setitem(KEPT_BYTES, "cpu", kept)
    found = fuse_again(setting, folder)
    assert len(alive) > 10
    assert {row["fusion"] for row in found} == set(without_training())
    assert found == expected


@pytest.mark.parametrize("asked", [0, 500_000, 2_000_000])
def test_the_size_of_a_group_changes_nothing(
    asked: int, setting: Setting, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = receive(setting, folder, SECTIONS).members
    named = {name: make_fusion(name) for name in FUSIONS if name != "otfusion"}
    usable = {name: rule for name, rule in named.items() if not rule.public and {*rule.needs} <= {*SECTIONS}}
    rules = {name: rule.fuse(members, setting.task) for name, rule in usable.items()}
    expected = score(rules, setting.data.test, setting.task)
    _, alone = evaluate_with_members(rules["logits"], members, setting.data.test, setting.task)
    monkeypatch.setitem(ASKED_BYTES, "cpu", asked)
    for name, scores in score(rules, setting.data.test, setting.task).items():
        torch.testing.assert_close(scores, expected[name], rtol=1e-3, atol=1e-3)
    assert evaluate_with_members(rules["logits"], members, setting.data.test, setting.task)[1] == alone


def test_uploads_are_opened_once_for_all_rules(
    setting: Setting, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    parse = server.parse

    def counted(message: bytes, *limit: int) -> Upload:
        opened.append(len(message))
        return parse(message, *limit)

    monkeypatch.setattr(server, "parse", counted)
    assert len(fuse_again(setting, folder)) == len(without_training())
    assert len(opened) == 3


class Counting(nn.Module):
    """An encoder that counts the images that it reads."""

    width = 5

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__()
        drawn = torch.randn(task.shape[1] * task.shape[2], 5, generator=torch.Generator().manual_seed(seed))
        self.drawn, self.seen = nn.Parameter(drawn, requires_grad=False), 0

    def forward(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        return images.flatten(1) @ self.drawn


def with_head(encoder: Any, seed: int) -> Classifier:
    torch.manual_seed(seed)
    return Classifier(encoder, PrototypeHead(5, 10)).requires_grad_(False)


def test_a_shared_encoder_encodes_each_image_once(task: Task, digits: Dataset) -> None:
    shared, own = Counting(task, 1), Counting(task, 2)
    models = with_head(shared, 1), with_head(own, 2), with_head(shared, 3)
    images = task.prepare(digits.test.images[:30])
    said = outputs_of(models, images)
    assert (shared.seen, own.seen) == (30, 30)
    assert torch.equal(said.features, torch.stack([model.features(images) for model in models]))
    assert torch.equal(said.logits, torch.stack([model(images) for model in models]))


def test_predictors_of_other_groups_of_models_share_what_an_encoder_says(task: Task, digits: Dataset) -> None:
    first, second = with_head(Counting(task, 1), 1), with_head(Counting(task, 2), 2)
    panels = {"both": [first, second], "again": [first, second], "one": [second], "turned": [second, first]}
    predictors = {name: Predictor(models, lambda out: out.logits.mean(0)) for name, models in panels.items()}
    found = score(predictors, digits.test, task)
    assert [model.encoder.seen for model in (first, second)] == [360, 360]
    assert torch.equal(found["one"], second(task.prepare(digits.test.images)))
    assert torch.equal(found["both"], found["turned"])


def test_models_that_are_made_one_after_the_other_are_not_taken_for_each_other(task: Task, digits: Dataset) -> None:
    images = task.prepare(digits.test.images[:5])
    made = OnDemand(tuple(lambda seed=seed: build(replace(task, seed=seed), PrototypeHead).eval() for seed in range(4)))
    expected = torch.stack([model.features(images) for model in made])
    assert torch.equal(outputs_of(made, images).features, expected)
    assert not any(torch.equal(one, other) for one, other in pairwise(expected))


def test_moments_in_parts_are_those_of_the_whole() -> None:
    whole = 100 + torch.randn(3, 50, 4, generator=torch.Generator().manual_seed(0))
    mean, std = running_moments([whole[:, :1], whole[:, 1:30], whole[:, 30:]])
    torch.testing.assert_close(mean, whole.double().mean(1, keepdim=True), rtol=1e-6, atol=0)
    torch.testing.assert_close(std, whole.double().std(1, keepdim=True, correction=0), rtol=1e-4, atol=0)


def test_a_budget_keeps_what_fits() -> None:
    budget = Budget(10)
    held = [budget.keep(name, size, lambda: "made") for name, size in (("a", 6), ("b", 6), ("c", 4), ("d", 1))]
    assert [get() for get in held] == ["a", "made", "c", "made"]


def test_equal_members_make_equal_models_and_others_do_not(setting: Setting, folder: RunFolder) -> None:
    members = receive(setting, folder, ("weights",)).members
    assert models_of(members) == models_of(list(members))
    assert models_of(members) != models_of(members[:2])
    assert len(models_of(members)[1:]) == 2


@pytest.fixture
def unread(setting: Setting, folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Member:
    """A member that was checked, and whose model has to be read again."""
    monkeypatch.setitem(KEPT_BYTES, "cpu", 0)
    file = tmp_path / "upload.safetensors"
    file.write_bytes(folder.upload(0).read_bytes())
    return Reception(setting, SECTIONS).admit(file, 0)


def flip(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("damage", [flip, lambda content: content[:-4], lambda content: b""])
def test_an_upload_that_changed_after_it_was_checked_is_refused(
    damage: Callable[[bytes], bytes], unread: Member, tmp_path: Path
) -> None:
    file = tmp_path / "upload.safetensors"
    kept, content = unread.model.state_dict(), file.read_bytes()
    file.write_bytes(damage(content))
    with pytest.raises(UserError, match="has changed since it was checked"):
        _ = unread.model
    file.write_bytes(content)
    assert all(torch.equal(kept[name], t) for name, t in unread.model.state_dict().items())
    file.unlink()
    with pytest.raises(UserError, match="is gone since it was checked"):
        unread.upload.section("moments")


def test_another_sound_upload_in_its_place_is_refused_too(unread: Member, folder: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "upload.safetensors").write_bytes(folder.upload(1).read_bytes())
    with pytest.raises(UserError, match="has changed"):
        _ = unread.model
