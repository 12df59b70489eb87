"""The server goes on with the uploads that are sound and says who sent the others, and fuses again without training."""

import copy
import pickle
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedshot.departure import make_upload
from fedshot.errors import UploadRefused, UserError
from fedshot.evaluate import score
from fedshot.experiment import finish_run, judged
from fedshot.fusion import FUSIONS, make_fusion
from fedshot.local.work import upload_of
from fedshot.method import Client
from fedshot.prepare import prepare
from fedshot.server import Reception, fuse_again, receive, sent
from fedshot.setting import Setting
from fedshot.spec import Spec, make_spec
from fedshot.store import ClientSummary, RunFolder
from fedshot.upload import SECTIONS, Upload, parse

Quick = Callable[..., Spec]


@pytest.fixture(scope="module")
def setting(quick: Quick) -> Setting:
    return prepare(quick("fafi", epochs=1, validation=0.2))


@pytest.fixture(scope="module")
def trained(setting: Setting, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The folder of a run as clients leave it, from models that differ but never trained."""
    folder = RunFolder(tmp_path_factory.mktemp("server") / "run")
    folder.begin(setting.spec, resume=False)
    for number in range(setting.spec.clients):
        client = setting.client(number)
        assert isinstance(client, Client)
        write(folder, upload_of(setting, client, perturbed(client, number), SECTIONS), client)
    return folder


def perturbed(client: Client, number: int) -> Any:
    draw = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for parameter in client.model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=draw))
    return client.model


def write(folder: RunFolder, upload: Upload, client: Client) -> None:
    folder.write_upload(upload)
    held_out = len(client.validation) if client.validation else 0
    folder.finish_client(ClientSummary(id=client.id, samples=len(client.train), validation_samples=held_out), [])


@pytest.fixture
def folder(trained: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy that a test may damage."""
    shutil.copytree(trained.path, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def rewrite(folder: RunFolder, number: int, change: Callable[[Upload], Upload]) -> None:
    file = folder.upload(number)
    file.write_bytes(change(parse(file.read_bytes())).to_bytes())


def say_client_0(upload: Upload) -> Upload:
    return Upload(upload.header.model_copy(update={"client": 0}), upload.tensors)


def explode(upload: Upload) -> Upload:
    """Finite weights whose answers are not."""
    filters = {n for n, t in upload.tensors.items() if n.startswith("weights/") and t.ndim == 4}
    return Upload(upload.header, {n: t * 1e30 if n in filters else t for n, t in upload.tensors.items()})


def nine_classes(upload: Upload) -> Upload:
    counts = upload.header.class_counts
    changed = {"class_counts": (counts[0] + counts[9], *counts[1:9])}
    return Upload(upload.header.model_copy(update=changed), upload.tensors)


def truncate(folder: RunFolder) -> None:
    folder.upload(1).write_bytes(folder.upload(1).read_bytes()[:5000])


DAMAGES: dict[str, tuple[Callable[[RunFolder], None], str]] = {
    "truncated": (truncate, "upload refused: not a fedshot upload"),
    "oversized": (lambda f: f.upload(1).write_bytes(bytes(50_000_000)), "upload refused: 50,000,000 bytes exceed"),
    "pickled": (lambda f: f.upload(1).write_bytes(pickle.dumps([1])), "upload refused: not a fedshot upload"),
    "gone": (lambda f: f.upload(1).unlink(), "its upload is not there"),
    "of client 0": (lambda f: rewrite(f, 1, say_client_0), "upload refused: .* comes from client 0, not 1"),
    "exploding": (lambda f: rewrite(f, 1, explode), "upload refused: its model answers with values that are not"),
    "of nine classes": (lambda f: rewrite(f, 1, nine_classes), "upload refused: 9 class counts for 10 classes"),
    "unfinished": (lambda f: (f.client(1) / "client.json").unlink(), "has not finished"),
    "half a summary": (lambda f: (f.client(1) / "client.json").write_text('{"id"'), "has not finished"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_bad_upload_is_told_and_the_others_go_on(
    damage: str, setting: Setting, trained: RunFolder, folder: RunFolder
) -> None:
    spoil, reason = DAMAGES[damage]
    spoil(folder)
    received = receive(setting, folder, ("weights",))
    assert [m.upload.header.client for m in received.members] == [0, 2]
    assert list(received.missing) == [1]
    assert re.match(reason, received.missing[1]), received.missing[1]
    whole = receive(setting, trained, ("weights",))
    assert [m.upload.sha256 for m in received.members] == [whole.members[k].upload.sha256 for k in (0, 2)]


def test_the_record_says_who_was_refused_and_why(setting: Setting, folder: RunFolder) -> None:
    truncate(folder)
    record = finish_run(setting, folder)
    refused = record.clients[1]
    assert refused.skipped is not None and refused.skipped.startswith("upload refused: not a fedshot upload")
    assert (refused.upload_bytes, refused.upload_sha256, refused.accuracy_alone) == (0, None, None)
    assert [client.skipped for client in (record.clients[0], record.clients[2])] == [None, None]
    assert record.cost.upload_bytes == sum(record.clients[k].upload_bytes for k in (0, 2)) > 0
    assert record.cost.models_kept == 2
    assert folder.record.exists()
    assert str(folder.path) not in folder.record.read_text()


def test_nothing_to_fuse_is_told_with_every_reason(setting: Setting, folder: RunFolder) -> None:
    for number in range(3):
        folder.upload(number).write_bytes(b"garbage")
    with pytest.raises(UserError, match=r"nothing to fuse: client 0: upload refused: .*; client 1: .*; client 2: "):
        receive(setting, folder, ("weights",))


def test_opening_an_upload_never_unpickles(
    setting: Setting, trained: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("an upload was unpickled")

    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, name, never)
    assert len(receive(setting, trained, SECTIONS).members) == 3


def test_an_opened_member_is_the_clients_model_frozen(setting: Setting, trained: RunFolder) -> None:
    member = Reception(setting, ("weights",)).admit(trained.upload(2), 2)
    state = parse(trained.upload(2).read_bytes()).section("weights")
    assert all(torch.equal(state[name], t) for name, t in member.model.state_dict().items())
    assert not member.model.training
    assert not any(parameter.requires_grad for parameter in member.model.parameters())


def test_a_section_that_the_rule_needs_must_be_there(setting: Setting, folder: RunFolder) -> None:
    rewrite(folder, 0, lambda upload: upload.only(("weights",)))
    Reception(setting, ("weights",)).admit(folder.upload(0), 0)
    with pytest.raises(UploadRefused, match="section moments is missing"):
        Reception(setting, make_fusion("moments").needs).admit(folder.upload(0), 0)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_smaller_precisions_are_opened_and_fused(precision: str, setting: Setting, folder: RunFolder) -> None:
    exact = fuse_again(setting, folder, ["features"])[0]

    def smaller(upload: Upload) -> Upload:
        sections = {name: upload.section(name) for name in SECTIONS}
        return make_upload(upload.header.model_copy(update={"precision": precision}), sections)

    for number in range(3):
        rewrite(folder, number, smaller)
    rough = fuse_again(setting, folder, ["features"])[0]
    assert rough["upload_bytes"] < 0.6 * exact["upload_bytes"]
    assert rough["accuracy"] == pytest.approx(exact["accuracy"], abs=0.05)
    assert rough["nll"] != exact["nll"]


def test_every_rule_is_scored_on_the_same_uploads(setting: Setting, trained: RunFolder) -> None:
    rows = fuse_again(setting, trained)
    assert {row["fusion"] for row in rows} == set(FUSIONS) - {"distilled", "single"}  # which train a model
    errors = {row["fusion"]: row["error"] for row in rows if "error" in row}
    assert errors.keys() == {"common", "routed"}  # there are no common features
    assert errors["routed"] == (
        "fusion routed needs common, turned_familiarity, reliability, which clients of fafi do not send: choose "
        "another rule, e.g. features"
    )
    rows = [row for row in rows if "error" not in row]
    assert [row["accuracy"] for row in rows] == sorted((row["accuracy"] for row in rows), reverse=True)
    assert {row["fusion"] for row in rows if not row["inductive"]} == {"batch_moments"}
    assert {row["fusion"] for row in rows if row["models_kept"] == 1} == {"average", "otfusion"}
    by_name = {row["fusion"]: row for row in rows}
    assert (
        by_name["typicality"]["upload_bytes"] > by_name["moments"]["upload_bytes"] > by_name["features"]["upload_bytes"]
    )
    members = receive(setting, trained, ("weights",)).members
    exact = sum(len(sent(m.upload, make_fusion("moments")).to_bytes()) for m in members)
    assert by_name["moments"]["upload_bytes"] == exact


def test_fusing_again_gives_what_the_run_recorded(setting: Setting, folder: RunFolder) -> None:
    record = finish_run(setting, folder)
    row = fuse_again(setting, folder, ["features"])[0]
    assert row["accuracy"] == record.final.accuracy
    assert row["confusion"] == [list(line) for line in record.final.confusion]
    assert row["upload_bytes"] == record.cost.upload_bytes


def test_a_client_can_be_left_out_after_the_fact(setting: Setting, trained: RunFolder) -> None:
    (row,) = fuse_again(setting, trained, ["features"], without=[1])
    assert row["clients"] == [0, 2]
    assert row["left_out"] == {"1": "left out on request"}
    assert row["models_kept"] == 2
    with pytest.raises(UserError, match="there is no client 3: the clients are 0 to 2"):
        fuse_again(setting, trained, ["features"], without=[3])
    with pytest.raises(UserError, match="no client is left"):
        fuse_again(setting, trained, ["features"], without=[0, 1, 2])


def test_rules_can_be_judged_on_what_clients_held_back(setting: Setting, trained: RunFolder) -> None:
    clients = [setting.client(number) for number in range(setting.spec.clients)]
    held_back = [client.validation for client in clients if isinstance(client, Client) and client.validation]
    (row,) = fuse_again(setting.on_held_out(), trained, ["logits"])
    assert row["images"] == sum(map(len, held_back)) != len(setting.data.test)
    rule = make_fusion("logits").fuse(receive(setting, trained, ("weights",)).members, setting.task)
    right = sum(int((score({"": rule}, part, setting.task)[""].argmax(1) == part.labels).sum()) for part in held_back)
    assert row["accuracy"] == right / row["images"]
    held_out = judged(rule, setting)
    assert held_out is not None and (held_out.accuracy, held_out.images) == (row["accuracy"], row["images"])
    assert held_out.nll == pytest.approx(row["nll"])
    assert fuse_again(setting, trained, ["logits"])[0]["images"] == len(setting.data.test)


def test_every_client_is_judged_by_the_same_share_of_its_images() -> None:
    setting = prepare(make_spec(method="fafi", validation=0.5, validation_most=20))
    judges = setting.on_held_out().data.test
    of_image = {image.numpy().tobytes(): number for number, image in enumerate(setting.data.train.images)}
    owner = {index: client for client, own in enumerate(setting.partition.indices) for index in own.tolist()}
    judged = Counter(owner[of_image[image.numpy().tobytes()]] for image in judges.images)
    sizes = [len(own) for own in setting.partition.indices]
    assert max(sizes) > 2 * min(sizes) and judged[sizes.index(max(sizes))] == 20
    assert [judged[client] for client in range(5)] == [pytest.approx(20.5 / max(sizes) * n, abs=0.5) for n in sizes]


def test_held_back_images_that_another_client_trained_on_judge_nothing() -> None:
    setting = prepare(make_spec(method="fafi", recipe="released", validation=0.3))
    clients = [client for client in map(setting.client, range(setting.spec.clients)) if isinstance(client, Client)]
    trained = {image.numpy().tobytes() for client in clients for image in client.train.images}
    judges = setting.on_held_out().data.test
    assert 0 < len(judges) < sum(len(client.validation or ()) for client in clients)
    assert not trained & {image.numpy().tobytes() for image in judges.images}
    few = prepare(make_spec(method="fafi", recipe="released", clients=100, validation=0.01))
    assert any(isinstance(client, Client) and client.validation for client in map(few.client, range(100)))
    with pytest.raises(UserError, match="holds back an image that none trained on"):
        few.on_held_out()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "hold nothing back: train with --validation 0.1"),
        ({"recipe": "own", "validation": 0.2}, "the server of a real federation has no image"),
    ],
)
def test_nothing_held_back_judges_nothing(settings: dict[str, Any], reason: str) -> None:
    setting = prepare(make_spec(method="fafi", **settings))
    assert setting.held_out is None
    with pytest.raises(UserError, match=reason):
        setting.on_held_out()


def test_who_was_refused_is_told_when_fusing_again(setting: Setting, folder: RunFolder) -> None:
    truncate(folder)
    (row,) = fuse_again(setting, folder, ["logits"])
    assert row["clients"] == [0, 2]
    assert row["left_out"]["1"].startswith("upload refused")


def test_a_rule_that_the_uploads_do_not_allow_says_why_and_stops_no_other(setting: Setting, folder: RunFolder) -> None:
    rewrite(folder, 1, lambda upload: upload.only(("weights", "moments")))
    rows = fuse_again(setting, folder, ["typicality", "moments"])
    assert [row["fusion"] for row in rows] == ["moments", "typicality"]
    assert rows[1]["error"] == "client 1 sent no familiarity: fuse the others by --without 1"
    for number in (0, 2):
        rewrite(folder, number, lambda upload: upload.only(("weights",)))
    rows = fuse_again(setting, folder, ["typicality", "moments", "features"])
    assert [row.get("error") for row in rows] == [
        None,
        "the uploads carry no familiarity: train with --validation 0.1",
        "clients 0,2 sent no moments: fuse the others by --without 0,2",
    ]


def test_reliability_without_validation_says_what_to_do(setting: Setting, folder: RunFolder) -> None:
    def forget(upload: Upload) -> Upload:
        return Upload(upload.header.model_copy(update={"validation_accuracy": None}), upload.tensors)

    for number in range(3):
        rewrite(folder, number, forget)
    (row,) = fuse_again(setting, folder, ["features:prototypes=reliability"])
    assert "train with --validation 0.1" in row["error"]


def test_fusing_leaves_the_members_as_they_were(setting: Setting, trained: RunFolder) -> None:
    members = receive(setting, trained, SECTIONS).members
    before = [copy.deepcopy(m.model.state_dict()) for m in members]
    hashes = [m.upload.sha256 for m in members]
    usable = [name for name in FUSIONS if not make_fusion(name).public and {*make_fusion(name).needs} <= {*SECTIONS}]
    for name in (*usable, "distilled:images=noise,count=9"):
        predictor = make_fusion(name).fuse(members, setting.task)
        predictor(setting.task.prepare(setting.data.test.images[:4]))
    assert [m.upload.sha256 for m in members] == hashes
    for member, state in zip(members, before, strict=True):
        assert all(torch.equal(state[name], t) for name, t in member.model.state_dict().items())
