"""A run on disk: atomic files, folders that are not touched by mistake, and runs that go on where they stopped."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fedshot.engines.job import Job, Watch
from fedshot.errors import UserError
from fedshot.experiment import Execution, run, run_all
from fedshot.record import Record
from fedshot.spec import Spec, make_spec
from fedshot.store import ClientSummary, RunFolder, differing_fields, outline_of, read_spec, write_atomic
from fedshot.study.grid import Cell
from fedshot.study.plan import folder_of, make_plan

Quick = Callable[..., Spec]
RESUME = Execution(resume=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


class StopsIn(Watch):
    """Interrupts when a client ends its first epoch, as a person would."""

    def __init__(self, client: int) -> None:
        self.client = client
        self.trained: list[int] = []

    def epoch(self, job: Job, epoch: int) -> None:
        self.trained.append(job.client)
        if job.client == self.client:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def spec(quick: Quick) -> Spec:
    return quick("etf", epochs=2, evaluate_at=(1,))


@pytest.fixture(scope="module")
def uninterrupted(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, RunFolder]:
    folder = tmp_path_factory.mktemp("store") / "whole"
    return run(spec, folder), RunFolder(folder)


def test_an_interrupted_run_goes_on_and_ends_as_if_it_had_not_been(
    spec: Spec, uninterrupted: tuple[Record, RunFolder], tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        run(spec, folder.path, watch=StopsIn(1))
    assert [folder.finished(k) is not None for k in range(3)] == [True, False, False]
    assert not folder.record.exists()
    kept = folder.upload(0).stat().st_mtime_ns
    watch = StopsIn(-1)
    record = run(spec, folder.path, RESUME, watch)
    assert set(watch.trained) == {1, 2}
    assert folder.upload(0).stat().st_mtime_ns == kept
    assert record.result_sha256 == uninterrupted[0].result_sha256
    assert [point.epoch for point in record.curve] == [1, 2]
    assert folder.telemetry.read_bytes() == uninterrupted[1].telemetry.read_bytes()


def test_without_resume_everything_is_trained_anew(spec: Spec, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        run(spec, folder.path, watch=StopsIn(2))
    watch = StopsIn(-1)
    run(spec, folder.path, watch=watch)
    assert set(watch.trained) == {0, 1, 2}


def test_a_run_of_another_version_is_not_gone_on_with(
    spec: Spec, uninterrupted: tuple[Record, RunFolder], tmp_path: Path
) -> None:
    old = RunFolder(Path(shutil.copytree(uninterrupted[1].path, tmp_path / "old")))
    content = json.loads(old.record.read_text())
    old.record.write_text(json.dumps({**content, "versions": {**content["versions"], "fedshot": "0.0.1"}}))
    with pytest.raises(UserError, match=r"holds a run of fedshot 0\.0\.1, this is "):
        run(spec, old.path, RESUME)
    (tmp_path / "runs").mkdir()
    old.path.rename(folder_of(uninterrupted[0].spec, tmp_path))
    with pytest.raises(UserError, match=r"holds a run of fedshot 0\.0\.1"):
        make_plan([Cell({"method": "etf", "seed": spec.seed}, spec)], tmp_path, None)


def test_resuming_a_finished_run_trains_nobody(spec: Spec, uninterrupted: tuple[Record, RunFolder]) -> None:
    record, folder = uninterrupted
    before, watch = contents(folder.path), StopsIn(-1)
    again = run(spec, folder.path, RESUME, watch)  # its snapshots are long gone
    assert watch.trained == []
    assert again.result_sha256 == record.result_sha256
    assert contents(folder.path) == before


def test_a_run_whose_clients_all_finished_is_fused_on_resume(quick: Quick, tmp_path: Path) -> None:
    spec, folder = quick("fafi", epochs=1), RunFolder(tmp_path / "run")
    first = run(spec, folder.path)
    folder.record.unlink()  # stopped before the server was done
    watch = StopsIn(-1)
    assert run(spec, folder.path, RESUME, watch).result_sha256 == first.result_sha256
    assert watch.trained == []
    assert folder.record.exists()


def test_a_finished_run_leaves_uploads_and_no_snapshots(uninterrupted: tuple[Record, RunFolder]) -> None:
    files = contents(uninterrupted[1].path)
    clients = [
        f"clients/{k}/{name}" for k in range(3) for name in ("client.json", "telemetry.jsonl", "upload.safetensors")
    ]
    assert sorted(files) == sorted([*clients, "record.json", "spec.json", "telemetry.jsonl"])
    assert Record.model_validate_json(files["record.json"]) == uninterrupted[0]
    assert read_spec(uninterrupted[1].spec) == uninterrupted[0].spec


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_of_another_spec_is_refused_and_untouched(
    resume: bool, uninterrupted: tuple[Record, RunFolder], quick: Quick
) -> None:
    folder = uninterrupted[1]
    before = contents(folder.path)
    with pytest.raises(UserError, match=r"holds a run of another spec \(epochs, .*differ\): choose another --out"):
        run(quick("etf", epochs=3, evaluate_at=(1,)), folder.path, Execution(resume=resume))
    assert contents(folder.path) == before


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_with_other_files_is_refused_and_untouched(resume: bool, quick: Quick, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="holds something that is not a run: choose another --out"):
        run(quick("fafi"), tmp_path, Execution(resume=resume))
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_a_damaged_spec_is_refused_and_untouched(quick: Quick, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text('{"method": "fafi", "alpha": -1}')
    with pytest.raises(UserError, match="is not the spec of a run: alpha = -1: it should be greater than 0"):
        run(quick("fafi"), tmp_path)
    (tmp_path / "spec.json").write_text("{")
    with pytest.raises(UserError, match="is not the spec of a run: Invalid JSON"):
        run(quick("fafi"), tmp_path)
    assert contents(tmp_path) == {"spec.json": b"{"}


@pytest.mark.parametrize("place", ["file", "file/run", "file/a/b"])
def test_a_file_where_the_folder_should_be(place: str, quick: Quick, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="file is a file: choose another --out"):
        run(quick("fafi"), tmp_path / place)
    assert contents(tmp_path) == {"file": b"mine"}


def test_nothing_is_written_if_one_of_several_folders_is_refused(quick: Quick, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="not a run"):
        run_all([(quick("fafi"), tmp_path / "new"), (quick("etf"), tmp_path / "taken")])
    assert contents(tmp_path) == {"taken/notes.txt": b"mine"}
    assert not (tmp_path / "new").exists()


def test_a_wrong_spec_writes_nothing(quick: Quick, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs held-out images"):
        run_all([(quick("fafi"), tmp_path / "one"), (quick("fafi", fusion="typicality"), tmp_path / "two")])
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    RunFolder(tmp_path / "empty").check(make_spec(method="fafi"))
    RunFolder(tmp_path / "new" / "deep").check(make_spec(method="fafi"))


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "record.json"
    write_atomic(file, b"old")

    def fail(*_: object) -> None:
        raise OSError(5, "the machine went down")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(OSError, match="went down"):
            write_atomic(file, b"new")
    assert file.read_bytes() == b"old"
    folder = RunFolder(tmp_path)
    folder.begin(make_spec(method="fafi"), resume=True)
    assert sorted(contents(tmp_path)) == ["record.json", "spec.json"]


def test_a_write_that_is_not_possible_names_the_file_that_was_meant(tmp_path: Path) -> None:
    (tmp_path / "record.json").mkdir()  # root may write anywhere, but not over a folder
    with pytest.raises(OSError) as error:
        write_atomic(tmp_path / "record.json", b"new")
    assert error.value.filename == str(tmp_path / "record.json")
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_a_client_is_finished_when_its_summary_is_whole(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.finished(0) is None
    summary = ClientSummary(id=0, samples=3, skipped="no luck")
    folder.finish_client(summary, [{"client": 0, "epoch": 1}])
    assert folder.finished(0) == summary
    (folder.client(0) / "client.json").write_text('{"id": 0')
    assert folder.finished(0) is None


def test_telemetry_of_all_clients_in_their_order(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    for number in (2, 0):
        folder.finish_client(ClientSummary(id=number, samples=1), [{"client": number, "epoch": 1}])
    folder.gather_telemetry(3)
    assert folder.telemetry.read_text() == '{"client": 0, "epoch": 1}\n{"client": 2, "epoch": 1}\n'


def test_differing_fields_are_named() -> None:
    one, other = make_spec(method="fafi"), make_spec(method="etf", seed=2)
    assert differing_fields(one, other) == ["method", "seed"]
    assert differing_fields(one, one) == []


def test_a_file_that_says_nothing_of_itself_as_an_upload_does(tmp_path: Path) -> None:
    for said in ("[1]", "7", "{", '"fedshot"'):
        save_file({"weights/x": torch.zeros(1)}, tmp_path / "upload.safetensors", {"fedshot": said})
        header, _ = outline_of(tmp_path / "upload.safetensors")
        assert header == {}, said
