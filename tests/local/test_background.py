"""The end of a client's work beside that of a device: the same files, the same errors, nothing left half done."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedshot.local import work
from fedshot.local.background import in_background
from fedshot.local.train import Bench
from fedshot.prepare import prepare
from fedshot.spec import Spec
from fedshot.store import RunFolder
from fedshot.upload import Upload

Quick = Callable[..., Spec]
GPU = torch.device("cuda")  # named, never used


def test_others_go_on_until_the_work_is_done() -> None:
    gate = threading.Event()
    doing = in_background(lambda: gate.wait(10), GPU)
    assert [next(doing), next(doing)] == [False, False]
    gate.set()
    with pytest.raises(StopIteration) as end:
        while True:
            next(doing)
    assert end.value.value is True


def test_on_a_cpu_it_is_done_at_once() -> None:
    with pytest.raises(StopIteration) as end:
        next(in_background(threading.get_ident, torch.device("cpu")))
    assert end.value.value == threading.get_ident()


def test_who_stops_earlier_waits_for_what_was_begun(tmp_path: Path) -> None:
    gate, file = threading.Event(), tmp_path / "file"

    def write() -> None:
        gate.wait(10)
        file.write_text("whole")

    doing = in_background(write, GPU)
    next(doing)
    gate.set()
    doing.close()
    assert file.read_text() == "whole"


@pytest.fixture
def beside_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients end as they do on a GPU."""
    monkeypatch.setattr(work, "in_background", lambda leave, device: in_background(leave, GPU))


def worked(spec: Spec, folder: RunFolder) -> None:
    for _ in work.client_work(prepare(spec), 0, folder, lambda epoch: None, Bench()):
        pass


def test_files_are_the_same(quick: Quick, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folders = RunFolder(tmp_path / "at once"), RunFolder(tmp_path / "beside")
    worked(quick("fafi"), folders[0])
    request.getfixturevalue("beside_a_device")
    worked(quick("fafi"), folders[1])
    for name in ("upload.safetensors", "telemetry.jsonl"):
        at_once, beside = ((folder.client(0) / name).read_bytes() for folder in folders)
        assert at_once == beside
    assert folders[1].finished(0) is not None


@pytest.mark.usefixtures("beside_a_device")
def test_all_clients_share_one_writer(quick: Quick, tmp_path: Path) -> None:
    for name in ("first", "second"):
        worked(quick("fafi"), RunFolder(tmp_path / name))
    assert [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()] == [
        "fedshot-writer_0"
    ]


@pytest.mark.usefixtures("beside_a_device")
def test_a_full_disk_is_told_and_the_client_has_not_finished(
    quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: RunFolder, upload: Upload, epoch: int | None = None) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(RunFolder, "write_upload", full)
    folder = RunFolder(tmp_path)
    with pytest.raises(OSError, match="no space left"):
        worked(quick("fafi"), folder)
    assert folder.finished(0) is None
