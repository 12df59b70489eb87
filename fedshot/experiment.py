"""The whole flow on one page: data → partition → local training → upload → fusion → evaluation → record."""

import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from fedshot.client_records import NOBODY, client_records, partition_told, peak_memory_of, spent_of
from fedshot.engines.here import train_jobs
from fedshot.engines.job import Job, Watch, too_large
from fedshot.evaluate import Metrics, evaluate, evaluate_with_members
from fedshot.execution import HERE, Execution
from fedshot.fusion import Predictor
from fedshot.local.work import forget_peak_memory, one_thread
from fedshot.prepare import prepare
from fedshot.privacy.counts import known_to_the_lab
from fedshot.privacy.record import privacy_of
from fedshot.record import Cost, Final, HeldOut, Point, Record, commit, read_record, versions
from fedshot.screen import Mode, screened
from fedshot.server import fuse_and_score, receive
from fedshot.setting import Setting
from fedshot.sharing import Sharer, by_family, take_over, takers
from fedshot.spec import Spec
from fedshot.store import ClientSummary, RunFolder, write_atomic
from fedshot.student import student_of
from fedshot.telling import heard_by

SILENT = Watch()
_COUNT_BYTES = 8  # of a class count that a client announces


def run(spec: Spec, out: Path | None = None, execution: Execution = HERE, watch: Watch = SILENT) -> Record:
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
    execution: Execution = HERE,
    watch: Watch = SILENT,
    donors: Iterable[Path] = (),
) -> list[Record | Exception]:
    """Many experiments, in the order asked; their clients share the workers. One that fails stops no other.

    Runs that differ only in their fusion rule train their clients once.

    Args:
        donors: folders of other runs, whose clients are taken where they are the same.
    """
    batch = _Batch(requests, execution, watch, donors)
    with heard_by(watch.server):
        jobs = batch.jobs()
        watch.planned(jobs)
        batch.finish_trained()
        for job, ended in train_jobs(jobs, execution.places, watch.epoch):
            batch.ended(job, ended)
    return [batch.outcomes[index] for index in range(len(requests))]


class _Batch:
    """Runs under way together, by their index. Of those that share clients one trains, and serves itself and others."""

    def __init__(
        self, requests: Sequence[tuple[Spec, Path]], execution: Execution, watch: Watch, donors: Iterable[Path]
    ) -> None:
        self.execution, self.watch = execution, watch
        self.folders = [RunFolder(out) for _, out in requests]
        self.settings = begin_all([spec for spec, _ in requests], self.folders, execution)
        known = {index: read_record(folder.record) for index, folder in enumerate(self.folders)}
        self.outcomes: dict[int, Record | Exception] = {index: record for index, record in known.items() if record}
        self.sharers = {i: Sharer.of(self.settings[i], self.folders[i]) for i in known if i not in self.outcomes}
        take_over(self.sharers.values(), by_family([*(folder.path for folder in self.folders), *donors]))
        self.served = takers(self.sharers, {i: sharer.lacking for i, sharer in self.sharers.items()})
        self.left = Counter[Path]()  # clients to train, by the folder in which that is done

    def jobs(self) -> list[Job]:
        """All that is to be trained."""
        found: list[Job] = []
        for index, others in self.served.items():
            try:
                send_job(self.settings[index], self.folders[index])
                found += jobs_of(self.settings[index], self.folders[index], self.execution)
            except torch.OutOfMemoryError:
                self.outcomes |= dict.fromkeys(others, too_large("what the server sends", self.execution.devices[0]))
            except Exception as error:
                self.outcomes |= dict.fromkeys(others, error)
        self.left.update(job.folder for job in found)
        return found

    def finish_trained(self) -> None:
        """Ends the runs for which nothing is left to train."""
        trainers = {index: trainer for trainer, others in self.served.items() for index in others}
        for index in range(len(self.folders)):
            if self.left[self.folders[trainers.get(index, index)].path] == 0:
                self.finish(index)

    def ended(self, job: Job, ended: ClientSummary | Exception) -> None:
        """Gives a client to all runs that it was trained for, and ends those that have all of theirs."""
        trainer = next(index for index in self.served if self.folders[index].path == job.folder)
        for index in self.served[trainer]:
            try:
                if isinstance(ended, Exception):
                    raise ended
                if index != trainer:
                    self.sharers[index].take(job.client, self.folders[trainer])
            except Exception as error:
                self.outcomes[index] = error
        self.left[job.folder] -= 1
        if self.left[job.folder] == 0:
            for index in self.served[trainer]:  # the end of a run drops its snapshots: the others have theirs by now
                self.finish(index)

    def finish(self, index: int) -> None:
        """The server's part of a run, unless it has ended or failed before."""
        if index not in self.outcomes:
            try:
                self.outcomes[index] = finish_run(self.settings[index], self.folders[index])
            except torch.OutOfMemoryError:
                self.outcomes[index] = too_large("the fusion", self.execution.devices[0])
            except Exception as error:
                self.outcomes[index] = error
        self.watch.finished(index, self.outcomes[index])


def begin_all(specs: Sequence[Spec], folders: Sequence[RunFolder], execution: Execution) -> list[Setting]:
    """Every spec prepared and its folder made; nothing is written if there is something wrong with one of them."""
    try:
        settings = [
            prepare(spec, execution.data_root, execution.devices[0], folder.pretrained)
            for spec, folder in zip(specs, folders, strict=True)
        ]
        for setting, folder in zip(settings, folders, strict=True):
            folder.check(setting.spec)
            if execution.resume:
                folder.check_version()
            setting.rehearse()
    except torch.OutOfMemoryError:
        raise too_large("a data set with a model", execution.devices[0]) from None
    for setting, folder in zip(settings, folders, strict=True):
        make_folder(setting, folder, execution.resume)
    return settings


def make_folder(setting: Setting, folder: RunFolder, resume: bool) -> None:
    """Makes the folder of a run, and keeps there what its clients start from."""
    pretrained = setting.task.pretrained
    folder.begin(setting.spec, resume, pretrained.content if pretrained else None)


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
        held_out = judged(predictor, setting)
        student = student_of(predictor, final.accuracy, alone.teacher_accuracy, setting.data.test, setting.task)
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
        held_out=held_out,
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


def judged(predictor: Predictor, setting: Setting) -> HeldOut | None:
    """A predictor on the images that clients hold back; None where there are none."""
    if setting.held_out is None:
        return None
    found = evaluate({"": predictor}, setting.held_out, setting.task)[""]
    figures = found.model_dump(include=set(HeldOut.model_fields))
    return HeldOut(images=len(setting.held_out), **figures).sealed(setting.spec)


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
