"""The whole flow on one page: data → partition → local training → upload → fusion → evaluation → record."""

import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fedshot.engines.here import train_jobs
from fedshot.engines.job import Job, Place, Watch, too_large
from fedshot.evaluate import Alone, Metrics, evaluate_with_members
from fedshot.local.work import CHECKPOINT_SECONDS, forget_peak_memory, one_thread, peak_memory
from fedshot.partition.own import as_told
from fedshot.privacy.accountant import Spent
from fedshot.privacy.counts import known_to_the_lab
from fedshot.privacy.record import privacy_of
from fedshot.record import ClientRecord, Cost, Final, Point, Record, commit, read_record, versions
from fedshot.screen import Mode, screened
from fedshot.server import Received, fuse_and_score, receive, sent
from fedshot.setting import Setting, prepare
from fedshot.spec import Spec
from fedshot.store import ClientSummary, RunFolder, write_atomic
from fedshot.student import student_of


@dataclass(frozen=True)
class Execution:
    """Where and how a run is computed. None of it changes a result on the CPU."""

    data_root: Path | None = None
    device: str = "cpu"  # "cpu", "cuda" for all GPUs, "cuda:1" for one, "cuda:0,cuda:1" for some
    workers: int = 1  # processes on the CPU; on GPUs it is one for each
    resume: bool = False  # keep clients that an earlier, interrupted run of the same spec finished
    lanes: int | None = None  # clients side by side on each GPU; None: as many as pay
    captured: bool = True  # on a GPU a step is recorded once and replayed
    fused: bool = True  # on a GPU BatchNorm and what follows it are one kernel
    checkpoint_seconds: float = CHECKPOINT_SECONDS  # between two files from which an interrupted client goes on

    @property
    def devices(self) -> tuple[str, ...]:
        """Every device by its full name; the server works on the first."""
        if self.device == "cuda":
            return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))
        return tuple(self.device.split(","))

    @property
    def places(self) -> list[Place]:
        """Where clients are trained, one process each."""
        devices = self.devices * self.workers if self.devices == ("cpu",) else self.devices
        return [Place(d, self.lanes, self.captured, self.fused, self.checkpoint_seconds) for d in devices]


SILENT = Watch()
NOBODY: Mapping[int, str] = MappingProxyType({})
_COUNT_BYTES = 8  # of a class count that a client announces


def run(spec: Spec, out: Path | None = None, execution: Execution = Execution(), watch: Watch = SILENT) -> Record:
    """One experiment. Its files stay in `out`, or nowhere if that is None."""
    if out is None:
        with tempfile.TemporaryDirectory() as scratch:
            return run(spec, Path(scratch) / "run", execution, watch)
    (outcome,) = run_all([(spec, out)], execution, watch)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def run_all(
    requests: Sequence[tuple[Spec, Path]],
    execution: Execution = Execution(),
    watch: Watch = SILENT,
) -> list[Record | Exception]:
    """Many experiments, in the order asked; their clients share the workers. One that fails stops no other."""
    folders = [RunFolder(out) for _, out in requests]
    try:
        settings = [prepare(spec, execution.data_root, execution.devices[0]) for spec, _ in requests]
        for setting, folder in zip(settings, folders, strict=True):
            folder.check(setting.spec)
            setting.rehearse()
    except torch.OutOfMemoryError:
        raise too_large("a data set with a model", execution.devices[0]) from None
    for setting, folder in zip(settings, folders, strict=True):
        folder.begin(setting.spec, execution.resume)
    outcomes: dict[int, Record | Exception] = {i: r for i, f in enumerate(folders) if (r := read_record(f.record))}
    jobs: list[Job] = []
    for index, (setting, folder) in enumerate(zip(settings, folders, strict=True)):
        if index not in outcomes:
            try:
                send_job(setting, folder)
                jobs += jobs_of(setting, folder, execution)
            except torch.OutOfMemoryError:
                outcomes[index] = too_large("what the server sends", execution.devices[0])
            except Exception as error:
                outcomes[index] = error
    watch.planned(jobs)
    left = [sum(job.folder == folder.path for job in jobs) for folder in folders]

    def finish(index: int) -> None:
        if index not in outcomes:
            try:
                outcomes[index] = finish_run(settings[index], folders[index])
            except torch.OutOfMemoryError:
                outcomes[index] = too_large("the fusion", execution.devices[0])
            except Exception as error:
                outcomes[index] = error
        watch.finished(index, outcomes[index])

    for index in range(len(folders)):
        if left[index] == 0:  # resumed, and nothing is left to train
            finish(index)
    for job, ended in train_jobs(jobs, execution.places, watch.epoch):
        index = [folder.path for folder in folders].index(job.folder)
        left[index] -= 1
        if isinstance(ended, Exception):
            outcomes[index] = ended
        if left[index] == 0:
            finish(index)
    return [outcomes[index] for index in range(len(folders))]


def send_job(setting: Setting, folder: RunFolder, announced: Tensor | None = None) -> None:
    """Makes what the server sends with the job, once: clients read it from the run's folder.

    Args:
        announced: class counts as clients told them, (K, C); None for those of the partition.
    """
    if setting.method.broadcast is not None and not folder.job.exists():
        started = time.perf_counter()
        with one_thread(setting.device):
            content = setting.method.broadcast(setting.opening(announced))
        folder.write_job(content, time.perf_counter() - started)


def jobs_of(setting: Setting, folder: RunFolder, execution: Execution) -> list[Job]:
    """The clients that still have to train."""
    sizes = setting.partition.sizes
    return [
        Job(setting.spec, k, sizes[k], folder.path, execution.data_root)
        for k in range(setting.spec.clients)
        if not folder.complete(k, setting.spec)
    ]


def finish_run(setting: Setting, folder: RunFolder, absent: Mapping[int, str] = NOBODY, screen: Mode = "off") -> Record:
    """The server's part: every evaluation point fused and scored, the record written.

    Args:
        absent: clients of which nothing came, and why: in a federation a run ends without them.
        screen: whether the last uploads are screened for poison, and whether suspects are left out of the fusion.
    """
    spec, started = setting.spec, time.perf_counter()
    forget_peak_memory(setting.device)
    with one_thread(setting.device):
        curve = [snapshot_point(setting, folder, epoch) for epoch in spec.evaluate_at[:-1]]
        received = receive(setting, folder, setting.fusion.needs, absent=absent)
        received, screening = screened(received, setting, screen)
        predictor = setting.fusion.fuse(received.members, setting.task)
        known = known_to_the_lab(received.members, setting.class_counts)
        final, alone = evaluate_with_members(predictor, known, setting.data.test, setting.task)
        student = student_of(predictor, final.accuracy, alone.teacher_accuracy, setting.data.test.images, setting.task)
        curve.append(point(spec.epochs, final))
    folder.gather_telemetry(spec.clients)
    clients = client_records(setting, folder, received, alone, absent)
    record = Record(
        spec=spec,
        partition=partition_told(setting, clients, received),
        clients=clients,
        curve=tuple(curve),
        final=Final(
            **final.model_dump(),
            epoch=spec.epochs,
            fusion=spec.fusion or setting.fusion.name,
            inductive=setting.fusion.inductive,
            phases=setting.method.phases,
            oracle_routing=alone.oracle_routing,
            personalised_accuracy=alone.personalised_accuracy,
        ),
        student=student,
        privacy=privacy_of(spec, setting.fusion, received.members, spent_of(setting, folder)),
        screening=screening,
        cost=Cost(
            client_seconds=sum(c.seconds for c in clients),
            slowest_client_seconds=max(c.seconds for c in clients),
            server_seconds=time.perf_counter() - started,
            upload_bytes=sum(c.upload_bytes for c in clients),
            announced_bytes=_COUNT_BYTES * setting.partition.class_counts.size if setting.method.phases == 2 else 0,
            job_bytes=folder.job.stat().st_size if folder.job.exists() else 0,
            job_seconds=folder.job_seconds(),
            peak_memory_bytes=peak_memory_of(setting, folder),
            models_kept=len(predictor.models),
        ),
        versions=versions(),
        device=torch.cuda.get_device_name(setting.device) if setting.device.type == "cuda" else "cpu",
        commit=commit(),
    ).sealed()
    record = record.model_copy(update={"findings": severe_findings(record, folder)})
    write_atomic(folder.record, record.model_dump_json(indent=1).encode())
    folder.drop_snapshots()
    return record


def severe_findings(record: Record, folder: RunFolder) -> tuple[str, ...]:
    """What a post-mortem finds severe, in words; none, with a warning, where it fails: it must not cost the result."""
    from fedshot.explain.engine import severe_titles  # only the end of a run needs it

    try:
        return severe_titles(record, folder.path)
    except Exception as error:
        warnings.warn(f"the post-mortem of {folder.path} failed: {type(error).__name__}: {error}", stacklevel=2)
        return ()


def snapshot_point(setting: Setting, folder: RunFolder, epoch: int) -> Point:
    """The snapshots after an epoch, fused and scored."""
    snapshots = receive(setting, folder, setting.fusion.needs, epoch).members
    return point(epoch, fuse_and_score(setting, snapshots, {"asked": setting.fusion})["asked"].metrics)


def point(epoch: int, found: Metrics) -> Point:
    """An evaluation point of the curve."""
    return Point(epoch=epoch, **found.model_dump(include=set(Point.model_fields)))


def client_records(
    setting: Setting, folder: RunFolder, received: Received, alone: Alone, absent: Mapping[int, str] = NOBODY
) -> tuple[ClientRecord, ...]:
    """Each client: what it sent for this fusion rule, what it cost, how good it is alone."""
    uploads = {m.upload.header.client: sent(m.upload, setting.fusion) for m in received.members}
    accuracy = dict(zip(uploads, alone.accuracies, strict=True))
    per_class = dict(zip(uploads, alone.per_class, strict=True))
    personalised = dict(zip(uploads, alone.personalised, strict=True))
    records = []
    for number in range(setting.spec.clients):
        summary, upload = folder.finished(number), uploads.get(number)
        if summary is None and number in absent:
            summary = ClientSummary(id=number, samples=setting.partition.sizes[number], skipped=absent[number])
        if summary is None:
            raise RuntimeError(f"client {number} has not finished")
        records.append(
            ClientRecord(
                **summary.model_dump(include={"id", "samples", "validation_samples", "seconds", "not_captured"}),
                upload_bytes=upload.size if upload else 0,
                upload_sha256=upload.sha256 if upload else None,
                accuracy_alone=accuracy.get(number),
                per_class_alone=per_class.get(number),
                personalised_accuracy=personalised.get(number),
                skipped=received.missing.get(number),
            )
        )
    return tuple(records)


def partition_told(setting: Setting, clients: Sequence[ClientRecord], received: Received) -> dict[str, Any]:
    """Who holds what: the partition, or what clients with data of their own told of themselves."""
    if not setting.own:
        return setting.partition.summary()
    headers = [m.upload.header for m in received.members if m.upload.header.counts != "withheld"]
    told = {header.client: header.class_counts for header in headers}
    samples = [client.samples + client.validation_samples for client in clients]
    return as_told(samples, [told.get(client.id) or (0,) * setting.task.classes for client in clients])


def spent_of(setting: Setting, folder: RunFolder) -> dict[int, Spent | None]:
    """What training under noise has cost each client that has finished."""
    summaries = [folder.finished(number) for number in range(setting.spec.clients)]
    return {summary.id: summary.spent for summary in summaries if summary}


def peak_memory_of(setting: Setting, folder: RunFolder) -> int:
    """The largest of any client's process and the server's."""
    summaries = [folder.finished(number) for number in range(setting.spec.clients)]
    return max([peak_memory(setting.device), *(s.peak_memory_bytes for s in summaries if s)])
