"""The whole flow: what a run leaves behind, what it refuses, how it goes on after an interruption."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from fedshot.data.dataset import Dataset
from fedshot.engines.job import Job, Watch
from fedshot.errors import UserError
from fedshot.experiment import Execution, jobs_of, run, run_all
from fedshot.explain import Finding, explain
from fedshot.explain.diagnoses import DIAGNOSES
from fedshot.holding import _dataset
from fedshot.local.familiarity import nearest_distance
from fedshot.local.work import peak_memory, train_client
from fedshot.prepare import prepare
from fedshot.record import Record
from fedshot.sections import Section
from fedshot.server import receive
from fedshot.setting import default_batch_size
from fedshot.spec import Spec, make_spec
from fedshot.store import RunFolder
from fedshot.study import load_results
from fedshot.upload import parse

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]


class Notes(Watch):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.jobs: list[int] = []
        self.epochs: list[tuple[int, int]] = []
        self.ended: list[tuple[int, bool]] = []

    def planned(self, jobs: Sequence[Job]) -> None:
        self.jobs = [job.client for job in jobs]

    def epoch(self, job: Job, epoch: int) -> None:
        self.epochs.append((job.client, epoch))

    def finished(self, index: int, outcome: Record | Exception) -> None:
        self.ended.append((index, isinstance(outcome, Record)))


def test_a_run_leaves_its_spec_record_telemetry_and_one_upload_a_client(quick: Quick, finished: FinishedRun) -> None:
    done = finished(quick("etf"))
    root = done.folder.path
    files = sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())
    of_clients = [
        f"clients/{k}/{n}" for k in range(3) for n in ("client.json", "telemetry.jsonl", "upload.safetensors")
    ]
    assert files == sorted([*of_clients, "record.json", "spec.json", "telemetry.jsonl"])  # snapshots are gone
    assert Record.model_validate_json(done.folder.record.read_text()) == done.record
    assert Spec.model_validate_json(done.folder.spec.read_text()) == done.record.spec


def test_the_record_is_complete(quick: Quick, finished: FinishedRun) -> None:
    done = finished(quick("etf"))
    record = done.record
    assert [point.epoch for point in record.curve] == [1, 2]
    assert (record.final.fusion, record.final.inductive, record.final.phases) == ("features", True, 1)
    assert record.spec.encoder == "cnn" and record.spec.augmentation == "characters"
    assert record.spec.precision == "fp32" and record.spec.options["weight"] == 5.0
    assert [client.samples for client in record.clients] == [40, 33, 17]
    for client in record.clients:
        sent = parse(done.folder.upload(client.id).read_bytes()).only(("weights",))
        assert (client.upload_bytes, client.upload_sha256) == (len(sent.to_bytes()), sent.sha256)
        assert client.accuracy_alone is not None and 0 <= client.accuracy_alone <= 1
    assert record.cost.upload_bytes == sum(client.upload_bytes for client in record.clients)
    assert record.cost.models_kept == 3 and record.cost.peak_memory_bytes > 0
    assert record.cost.slowest_client_seconds <= record.cost.client_seconds
    assert {"fedshot", "torch", "python"} <= record.versions.keys()


def test_the_final_metrics_agree_with_each_other(quick: Quick, finished: FinishedRun) -> None:
    final = finished(quick("etf")).record.final
    confusion = torch.tensor(final.confusion)
    assert confusion.sum() == 360
    assert final.accuracy == pytest.approx(confusion.diagonal().sum().item() / 360)
    assert final.worst_class_accuracy == min(value for value in final.per_class_accuracy if value is not None)


def test_the_hash_of_a_result_forgets_the_clock_and_nothing_else(quick: Quick, finished: FinishedRun) -> None:
    record = finished(quick("etf")).record
    slower = [client.model_copy(update={"seconds": client.seconds + 1}) for client in record.clients]
    assert record.model_copy(update={"clients": tuple(slower)}).sealed().result_sha256 == record.result_sha256
    other = record.model_copy(update={"final": record.final.model_copy(update={"nll": record.final.nll + 1e-9})})
    assert other.sealed().result_sha256 != record.result_sha256


def test_severe_findings_are_in_the_record_and_not_in_the_hash(divided: Callable[..., str], tmp_path: Path) -> None:
    file = divided((40, range(9)), (40, range(9)))
    spec = make_spec(method="fafi", clients=2, partition_file=file, epochs=1, batch_size=16)
    record = run(spec, tmp_path / "run")
    assert any("class 9" in finding for finding in record.findings)  # which nobody holds
    assert record.findings == tuple(f.title for f in explain(tmp_path / "run") if f.severity == "severe")
    assert record.model_copy(update={"findings": ()}).sealed().result_sha256 == record.result_sha256
    assert not load_results(tmp_path).problems


def test_a_diagnosis_that_fails_does_not_cost_the_result(
    quick: Quick, finished: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(run: object) -> list[Finding]:
        raise ZeroDivisionError("no clients")

    monkeypatch.setitem(DIAGNOSES, "routing_loss", broken)
    with pytest.warns(UserWarning, match="post-mortem of .* failed: ZeroDivisionError: no clients"):
        record = run(quick("etf"))
    assert record.findings == () and record.result_sha256 == finished(quick("etf")).record.result_sha256


def test_a_run_without_a_folder_leaves_nothing(
    quick: Quick, finished: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(quick("etf")).result_sha256 == finished(quick("etf")).record.result_sha256
    assert not list(tmp_path.iterdir())


def test_a_folder_of_another_spec_is_refused_and_kept(quick: Quick, tmp_path: Path) -> None:
    run(quick("fedavg", epochs=1), tmp_path / "run")
    record = (tmp_path / "run" / "record.json").read_bytes()
    with pytest.raises(UserError, match=r"another spec .*lr"):
        run(quick("fedavg", epochs=1, lr=0.01), tmp_path / "run")
    assert (tmp_path / "run" / "record.json").read_bytes() == record


def test_a_folder_of_something_else_is_refused(quick: Quick, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("do not lose me")
    with pytest.raises(UserError, match="not a run"):
        run(quick("fedavg"), tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "do not lose me"


def test_an_interrupted_run_goes_on_where_it_was(quick: Quick, finished: FinishedRun, tmp_path: Path) -> None:
    spec = quick("fafi")

    class Interrupting(Notes):
        def epoch(self, job: Job, epoch: int) -> None:
            super().epoch(job, epoch)
            if job.client == 1 and epoch == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(spec, tmp_path / "run", watch=Interrupting())
    kept = (tmp_path / "run" / "clients" / "0" / "client.json").stat().st_mtime_ns
    notes = Notes()
    record = run(spec, tmp_path / "run", Execution(resume=True), notes)
    assert notes.jobs == [1, 2]
    assert (tmp_path / "run" / "clients" / "0" / "client.json").stat().st_mtime_ns == kept
    assert record.result_sha256 == finished(spec).record.result_sha256


def test_a_finished_run_is_resumed_without_training(quick: Quick, tmp_path: Path) -> None:
    spec = quick("fedavg", epochs=1)
    first, notes = run(spec, tmp_path / "run"), Notes()
    again = run(spec, tmp_path / "run", Execution(resume=True), notes)
    assert notes.jobs == notes.epochs == [] and notes.ended == [(0, True)]
    assert again.result_sha256 == first.result_sha256
    RunFolder(tmp_path / "run").record.unlink()  # the server was interrupted, the clients had finished
    fused_again = run(spec, tmp_path / "run", Execution(resume=True))
    assert fused_again.result_sha256 == first.result_sha256


def test_resume_trains_a_client_again_whose_upload_is_gone(quick: Quick, tmp_path: Path) -> None:
    spec, folder, notes = quick("fedavg"), RunFolder(tmp_path / "run"), Notes()
    first = run(spec, folder.path)
    folder.upload(1).unlink()
    folder.record.write_text("{half a record")
    again = run(spec, folder.path, Execution(resume=True), notes)
    assert 1 in notes.jobs
    assert again.result_sha256 == first.result_sha256


def test_a_partition_file_that_changed_ends_the_run(quick: Quick, divided: Callable[..., str], tmp_path: Path) -> None:
    file = divided((40, range(5)), (40, range(5, 10)))
    spec = quick("fedavg", epochs=1, clients=2, partition_file=file)
    run(spec, tmp_path / "run")
    complete = prepare(spec).spec
    Path(file).write_bytes(Path(divided((30, range(5)), (50, range(5, 10)))).read_bytes())
    with pytest.raises(UserError, match="files differ"):
        run(spec, tmp_path / "run", Execution(resume=True))
    with pytest.raises(UserError, match="has changed since this run began"):
        prepare(complete)


def test_pictures_that_changed_make_another_run(digits: Dataset, tmp_path: Path) -> None:
    for number in range(40):
        place = tmp_path / "pictures" / str(number % 2) / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(digits.train.images[number, 0].numpy()).save(place)
    spec = make_spec(method="fedavg", data=f"folder:{tmp_path / 'pictures'}", clients=2, recipe="iid")
    before = prepare(spec).spec
    _dataset.cache_clear()  # a process reads a folder once
    Image.fromarray(digits.train.images[50, 0].numpy()).save(place)
    with pytest.raises(UserError, match="has changed since this run began"):
        prepare(before)


def test_a_method_sends_a_section_of_its_own(quick: Quick, tmp_path: Path) -> None:
    largest = Section(
        make=lambda evidence: {"norm": evidence.features.norm(dim=1).max()[None]},
        layout=lambda sizes: {"norm": (1,)},
        complaint=lambda content, held: "norm is negative" if (content["norm"] < 0).any() else None,
    )
    setting = prepare(quick("fafi", epochs=1))
    rule = replace(setting.fusion, needs=("weights", "largest"))
    setting = replace(setting, method=replace(setting.method, statistics={"largest": largest}), fusion=rule)
    folder = RunFolder(tmp_path)
    for number in range(3):
        train_client(setting, number, folder, lambda epoch: None)
    received = receive(setting, folder, rule.needs)
    assert [m.upload.sections for m in received.members] == [{"weights", "largest"}] * 3
    bad = parse(folder.upload(1).read_bytes())
    bad = replace(bad, tensors={**bad.tensors, "largest/norm": torch.tensor([-1.0])})
    folder.write_upload(bad)
    assert receive(setting, folder, rule.needs).missing == {1: "upload refused: largest/norm is negative"}


def test_memory_is_that_of_the_run(quick: Quick, tmp_path: Path) -> None:
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("this system cannot forget the peak of a process")
    large = torch.ones(100_000_000)  # 400 MB that are gone before the run begins
    highest = peak_memory(torch.device("cpu"))
    del large
    record = run(quick("fedavg", epochs=1), tmp_path / "run")
    assert 0 < record.cost.peak_memory_bytes < highest - 200_000_000


def test_without_resume_everything_is_trained_anew(quick: Quick, tmp_path: Path) -> None:
    spec, notes = quick("fedavg", epochs=1), Notes()
    first = run(spec, tmp_path / "run")
    again = run(spec, tmp_path / "run", watch=notes)
    assert sorted(notes.jobs) == [0, 1, 2]
    assert again.result_sha256 == first.result_sha256


def test_a_run_that_fails_stops_no_other(quick: Quick, tmp_path: Path) -> None:
    wild, calm = quick("fedavg", epochs=1, lr=1e30, clip=0.0), quick("fedavg", epochs=1)
    notes = Notes()
    failed, fine = run_all([(wild, tmp_path / "a"), (calm, tmp_path / "b")], watch=notes)
    assert isinstance(failed, UserError) and isinstance(fine, Record)
    assert sorted(notes.ended) == [(0, False), (1, True)]


def test_a_mistake_in_one_spec_starts_no_training(quick: Quick, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'weight'"):
        run_all([(quick("etf"), tmp_path / "a"), (quick("etf", {"wieght": 1}), tmp_path / "b")])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"method": "fedavgg"}, "did you mean 'fedavg'"),
        ({"encoder": "resnet19"}, "unknown encoder"),
        ({"fusion": "typicality"}, "--validation 0.1"),
        ({"fusion": "nothing"}, "unknown fusion rule"),
        ({"clients": 2}, "over 3 clients, not 2"),
        ({"data": "mnisst"}, "mnisst"),
    ],
)
def test_what_cannot_work_is_refused_before_training(changes: dict[str, Any], complaint: str, quick: Quick) -> None:
    with pytest.raises(UserError, match=complaint):
        prepare(quick(**{"method": "fafi", **changes}))


def test_a_client_that_uploads_nonsense_is_left_out(quick: Quick, tmp_path: Path) -> None:
    spec = quick("fedavg", epochs=1)
    run(spec, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    folder.record.unlink()  # as if the server had not spoken yet
    folder.upload(1).write_bytes(b"nonsense")
    record = run(spec, tmp_path / "run", Execution(resume=True))
    assert (record.clients[1].skipped or "").startswith("upload refused")
    assert [client.skipped for client in record.clients[::2]] == [None, None]
    assert record.cost.upload_bytes == record.clients[0].upload_bytes + record.clients[2].upload_bytes


def test_the_watch_hears_of_every_epoch(quick: Quick, tmp_path: Path) -> None:
    notes = Notes()
    run(quick("fedavg"), tmp_path / "run", watch=notes)
    assert notes.jobs == [0, 1, 2]
    assert notes.epochs == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]  # the largest client first
    assert notes.ended == [(0, True)]


def test_a_complete_spec_completes_to_itself(quick: Quick) -> None:
    complete = prepare(quick("V7")).spec
    assert prepare(complete).spec == complete
    assert complete.method == "etf" and complete.fusion == "features" and complete.options["anneal"] == "linear"


def test_default_batch_sizes() -> None:
    data = prepare(make_spec(method="fafi")).data
    many = replace(data.train, images=torch.zeros(10_000, 3, 32, 32, dtype=torch.uint8), labels=torch.zeros(10_000))
    large = replace(many, images=torch.zeros(10_000, 1, 64, 1, dtype=torch.uint8))
    sizes = [default_batch_size(replace(data, train=train)) for train in (data.train, many, large)]
    assert sizes == [32, 512, 256]


def test_jobs_carry_the_size_of_their_client(quick: Quick, tmp_path: Path) -> None:
    jobs = jobs_of(prepare(quick("fafi")), RunFolder(tmp_path), Execution(device="cpu"))
    assert [(job.client, job.samples) for job in jobs] == [(0, 40), (1, 33), (2, 17)]


def test_a_run_with_validation_uploads_what_familiarity_needs(quick: Quick, tmp_path: Path) -> None:
    spec = quick("fafi", epochs=1, validation=0.2, fusion="typicality")
    record = run(spec, tmp_path / "run")
    header = parse(RunFolder(tmp_path / "run").upload(0).read_bytes()).header
    assert header.validation_accuracy is not None and header.samples == 32
    assert [client.validation_samples for client in record.clients] == [8, 7, 3]
    assert record.final.fusion == "typicality"


def test_features_that_overflow_stop_no_run() -> None:
    broken = torch.full((3, 4), torch.nan)
    distances = nearest_distance(broken, torch.zeros(2, 4), torch.tensor([True, True]), broken.T @ broken)
    assert distances.isnan().all()


def test_telemetry_is_json_that_any_reader_takes(quick: Quick, finished: FinishedRun) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for line in finished(quick("fafi")).folder.telemetry.read_text().splitlines():
        json.loads(line, parse_constant=refuse)


FAILS_TO_OPEN = """
from dataclasses import replace

from torch import Tensor

from fedshot.method import Method, Opening
from fedshot.methods.fafi import fafi


def fails_to_open() -> Method:
    def broadcast(opening: Opening) -> dict[str, Tensor]:
        raise RuntimeError("nothing to send")

    return replace(fafi(), name="fails_to_open", broadcast=broadcast)
"""


def test_a_run_whose_job_cannot_be_made_stops_no_other(quick: Quick, tmp_path: Path) -> None:
    (tmp_path / "variant.py").write_text(FAILS_TO_OPEN)
    specs = [quick(str(tmp_path / "variant.py")), quick("fafi")]
    failed, fine = run_all([(spec, tmp_path / str(number)) for number, spec in enumerate(specs)])
    assert isinstance(failed, RuntimeError) and str(failed) == "nothing to send"
    assert isinstance(fine, Record)
