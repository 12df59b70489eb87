"""Clients with data of their own: labels by name, a record of what they told, and every other command on the run."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedshot.cli import main
from fedshot.data.dataset import Dataset
from fedshot.errors import UserError
from fedshot.experiment import run
from fedshot.explain import explain
from fedshot.federation.conduct import begin
from fedshot.federation.holdings import client_setting, own_data
from fedshot.federation.order import Order, make_order
from fedshot.federation.plan import Plan
from fedshot.federation.share import read_share, write_shares
from fedshot.federation.site import Site, SiteFile
from fedshot.partition import Partition
from fedshot.prepare import prepare
from fedshot.spec import Spec, make_spec
from fedshot.upload import parse

Make = Callable[..., Any]


@pytest.fixture(scope="module")
def own() -> Spec:
    return make_spec(method="fafi", clients=3, recipe="own", epochs=1, batch_size=16)


@pytest.fixture
def order(own: Spec) -> Order:
    return make_order(prepare(own), "train", "a run")


def share(folder: Path, digits: Dataset, labels: list[int], names: list[str] | None = None) -> str:
    """A share with images of these labels, in this order, under other names."""
    first = {label: int((digits.train.labels == label).nonzero()[0]) for label in set(labels)}
    folder.mkdir(exist_ok=True)
    file = folder / "share.npz"
    images = digits.train.images[[first[label] for label in labels]].numpy()
    known = names or list(digits.class_names)
    np.savez(file, images=images, labels=np.array(labels), class_names=np.array(known))
    return str(file)


@pytest.fixture
def of_their_own(own: Spec, one_epoch: Spec, settled: Make, tmp_path: Path, federation: Make) -> Any:
    """A federation in which the server knows nothing of what its clients hold."""
    return federation(own, settled(one_epoch, tmp_path))


def test_the_record_says_what_the_clients_told(of_their_own: Any, digits: Dataset) -> None:
    record = of_their_own.conduct()
    told = record.partition
    assert told["recipe"] == "own" and told["sizes"] == [24, 20, 17] and told["unknown"] == []
    for client in range(3):
        header = parse(of_their_own.run.upload(client).read_bytes()).header
        assert told["class_counts"][client] == list(header.class_counts)
    assert sum(told["class_counts"][2]) == 17 and told["entropy_bits"][2] == pytest.approx(1.0, abs=0.01)
    assert "overlap" not in told and len(told["fingerprint"]) == 64


def test_equal_holdings_have_an_equal_fingerprint_and_others_another(of_their_own: Any, federation: Make) -> None:
    first = of_their_own.conduct()
    of_their_own.folder = of_their_own.folder / "again"
    again = of_their_own.conduct()
    assert again.result_sha256 == first.result_sha256  # another run, another order, the same result
    of_their_own.folder = of_their_own.folder / "without"
    of_their_own.transport.offline.add(0)
    without = of_their_own.conduct(deadline_seconds=20.0)
    assert without.partition["fingerprint"] != first.partition["fingerprint"]
    assert without.partition["sizes"] == [0, 20, 17] and without.partition["unknown"] == [0]


def test_a_client_that_withholds_its_counts_is_unknown(of_their_own: Any) -> None:
    site = of_their_own.sites[1]
    site.write(site.read().model_copy(update={"counts": "withheld"}))
    record = of_their_own.conduct()
    assert record.clients[1].skipped is None and record.clients[1].samples == 20
    assert record.partition["unknown"] == [1] and record.partition["class_counts"][1] == [0] * 10
    assert record.privacy is not None and record.privacy.clients[1].counts == "withheld"


def test_every_other_command_works_on_the_run(
    of_their_own: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    of_their_own.transport.offline.add(2)
    record, folder = of_their_own.conduct(deadline_seconds=20.0), of_their_own.run.path
    assert record.clients[2].skipped == "was not online before the deadline"
    for words in (
        ["fuse", str(folder), "-f", "features", "--json"],
        ["fuse", str(folder), "-f", "features", "-f", "logits"],
        ["report", str(folder), "--out", str(tmp_path / "report.html")],
        ["explain", str(folder)],
    ):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 0
        if words[-1] == "logits":
            assert "choose on data of your own" in capsys.readouterr().out
        elif words[0] == "fuse":
            (row,) = json.loads(capsys.readouterr().out)
            assert row["clients"] == [0, 1] and row["accuracy"] == record.final.accuracy
    assert (tmp_path / "report.html").stat().st_size > 10_000
    with pytest.raises(SystemExit) as end:
        main(["fuse", str(folder), "--on", "held-out"])
    assert end.value.code == 2 and "theirs alone" in capsys.readouterr().err
    assert record.held_out is None
    assert isinstance(explain(folder), list)


def test_own_data_need_a_federation(own: Spec, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="start one by `fedshot federation run`, or choose a recipe"):
        run(own, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(SystemExit) as end:
        main(["partition", "--recipe", "own"])
    assert end.value.code == 2


def test_a_wrong_option_is_told_before_anybody_is_asked(federation: Make, own: Spec, tmp_path: Path) -> None:
    made = federation(own.model_copy(update={"method": "etf", "options": {"anchors": "file"}}), [Site(tmp_path)] * 3)
    with pytest.raises(UserError, match="file"):
        made.conduct()
    made = federation(own.model_copy(update={"evaluate_at": (1,), "epochs": 2}), [Site(tmp_path)] * 3)
    with pytest.raises(UserError, match="a client speaks once"):
        made.conduct()
    assert not made.run.path.exists()


def test_labels_are_matched_by_their_names(order: Order, digits: Dataset, tmp_path: Path) -> None:
    names = [digits.class_names[label] for label in (7, 3)]
    file = share(tmp_path / "two", digits, [0, 1, 0, 1, 1], names)
    held = own_data(SiteFile(name="two", number=0, data=file), order)
    assert held.labels.tolist() == [7, 3, 7, 3, 3]


def test_a_label_or_a_shape_that_the_job_does_not_know_is_refused(
    order: Order, digits: Dataset, tmp_path: Path
) -> None:
    strange = share(tmp_path / "strange", digits, [0, 1, 1], ["seven", digits.class_names[1]])
    with pytest.raises(
        UserError, match=r"has images of seven, and the job knows only 0, 1, 2, 3, 4 and 5 more: rename"
    ):
        own_data(SiteFile(name="strange", number=0, data=strange), order)
    other = order.model_copy(update={"shape": (3, 32, 32)})
    with pytest.raises(UserError, match=r"are 1×8×8 \(channels × height × width\), those of the job 3×32×32"):
        own_data(SiteFile(name="one", number=0, data=share(tmp_path / "one", digits, [1, 1])), other)


def test_an_unused_name_is_no_reason_to_refuse(order: Order, digits: Dataset, tmp_path: Path) -> None:
    file = share(tmp_path / "more", digits, [1, 1], ["seven", "1"])
    assert own_data(SiteFile(name="more", number=0, data=file), order).labels.tolist() == [1, 1]


def test_a_folder_of_pictures_of_one_class_and_any_size(order: Order, tmp_path: Path) -> None:
    place = tmp_path / "pictures" / "4"
    place.mkdir(parents=True)
    for number in range(3):
        Image.fromarray(np.full((20, 30, 3), 80 * number, np.uint8)).save(place / f"{number}.png")
    site = Site(tmp_path)
    site.write(SiteFile(name="camera", number=1, data="folder:pictures"))
    held = own_data(site.read(), order)
    assert tuple(held.images.shape) == (3, 1, 8, 8) and held.labels.tolist() == [4, 4, 4]
    (tmp_path / "pictures").rename(tmp_path / "away")
    with pytest.raises(UserError, match="is not a folder: give one with a subfolder"):
        own_data(site.read(), order)


def test_a_data_set_by_name(order: Order, digits: Dataset) -> None:
    held = own_data(SiteFile(name="all", number=0, data="digits"), order)
    assert len(held) == len(digits.train)


def test_an_empty_share_is_a_client_without_samples(federation: Make, divided: Make, finished: Make) -> None:
    spec = make_spec(method="fafi", clients=2, partition_file=divided((20, range(5)), (0, ())), epochs=1, batch_size=16)
    record = federation(spec).conduct()
    assert record.clients[1].skipped == "no samples"
    assert record.result_sha256 == finished(spec).record.result_sha256


def test_a_share_comes_back_as_it_was_written(digits: Dataset, tmp_path: Path) -> None:
    labels = digits.train.labels.numpy()
    files = write_shares(digits, Partition.of([np.array([5, 2]), np.array([9])], labels, "by hand", {}), tmp_path)
    assert [file.name for file in files] == ["share-0.npz", "share-1.npz"]
    part, names = read_share(files[0])
    assert names == digits.class_names and part.labels.tolist() == labels[[2, 5]].tolist()
    assert (part.images == digits.train.images[[2, 5]]).all()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing", None])
def test_a_share_that_is_none(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "share-0.npz"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match="is not a share of a data set"):
        read_share(file)


def test_a_pickled_share_is_not_opened(tmp_path: Path) -> None:
    file = tmp_path / "share.npz"
    np.savez(file, images=np.array([{}], dtype=object), labels=np.zeros(1), class_names=np.array(["a"]))
    with pytest.raises(UserError, match="is not a share of a data set"):
        read_share(file)


def test_the_command_exports_what_every_client_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["partition", "--clients", "3", "--public", "0.1", "--export", str(tmp_path / "shares"), "--json"])
    assert end.value.code == 0
    told = json.loads(capsys.readouterr().out)
    sizes = [len(read_share(tmp_path / "shares" / f"share-{k}.npz")[0]) for k in range(3)]
    assert sizes == told["sizes"]
    assert sizes == list(prepare(make_spec(method="public_bank", clients=3, public="0.1")).partition.sizes)


VARIANT = """
from dataclasses import replace
from fedshot.method import Method
from fedshot.methods.fafi import fafi

def variant() -> Method:
    return replace(fafi(), name="variant")
"""


def test_no_code_travels(federation: Make, divided: Make, tmp_path: Path, finished: Make) -> None:
    """A method of a file runs at a client that was given the same file by its operator, and nowhere else."""
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "mine.py").write_text(VARIANT)
    for place in ("site-0", "site-2"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "copy.py").write_text(VARIANT if place == "site-0" else VARIANT + "# another one\n")
    file = divided((20, range(5)), (20, range(5, 10)), (17, range(3)))
    method = str(tmp_path / "server" / "mine.py")
    spec = make_spec(method=method, clients=3, partition_file=file, epochs=1, batch_size=16)
    made = federation(spec)
    for number in (0, 2):
        site = made.sites[number]
        site.write(site.read().model_copy(update={"files": (Path("copy.py"),)}))
    record = made.conduct()
    assert record.clients[0].upload_sha256 == finished(spec).uploads[0]
    for number in (1, 2):
        assert "this client was not given it" in (record.clients[number].skipped or "")


def test_a_rule_from_a_file_is_for_stored_uploads_alone(own: Spec, order: Order, tmp_path: Path) -> None:
    """Neither does the server ask for one, nor would a client run it."""
    rule = tmp_path / "rule.py"
    rule.write_text("raise SystemExit('this code was run')")
    site, taught = SiteFile(name="one", number=0, data="digits"), f"distilled:teacher={rule},images=noise"
    for change in (
        {"fusion": f"{rule}:mine"},
        {"fusion": taught},
        {"method": "distilled", "options": {"teacher": str(rule)}},
    ):
        asked = order.model_copy(update={"spec": order.spec.model_copy(update=change)})
        with pytest.raises(
            UserError, match=r"no code of the server's is run here|must be one of our rules, not a file"
        ):
            client_setting(site, asked)
    rule.write_bytes((Path(__file__).parents[2] / "examples" / "confident_vote.py").read_bytes())
    with pytest.raises(UserError, match="then try yours on its uploads: fedshot fuse RUN -f "):
        begin(own.model_copy(update={"fusion": str(rule)}), tmp_path / "run", Plan(nodes={1: 0, 2: 1, 3: 2}))
    assert not (tmp_path / "run").exists()


def test_a_client_of_a_number_that_the_job_does_not_have(own: Spec, order: Order, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this is client 3, and the job has only the clients 0 to 2"):
        client_setting(SiteFile(name="more", number=3, data="digits"), order)


def test_another_split_than_the_one_that_is_rehearsed_is_refused(federation: Make, one_epoch: Spec) -> None:
    made = federation(one_epoch)
    made.transport.handlers[0] = partial(made.answer, 0)
    site = made.sites[0]
    site.write(site.read().model_copy(update={"data": made.sites[1].read().data}))
    record = made.conduct()
    assert record.clients[0].skipped == (
        "its upload was refused: it trains on 20 samples, and the partition gives it 24"
    )
