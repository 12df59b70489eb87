"""A whole run over a network, from the server's side: announce, order, collect, fuse, and listen for late uploads."""

import fcntl
import secrets
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from fedshot.errors import UserError
from fedshot.experiment import finish_run, make_folder, send_job
from fedshot.federation.collect import Collection
from fedshot.federation.desk import Desk, Outcome, is_full, read_announced, write_announced
from fedshot.federation.ledger import Ledger
from fedshot.federation.messages import Packet, Question
from fedshot.federation.order import Order, make_order, read_order
from fedshot.federation.plan import Plan, read_plan, write_plan
from fedshot.federation.transport import Clock, SystemClock, Transport
from fedshot.partition.own import as_if_shared
from fedshot.prepare import prepare
from fedshot.record import Record, read_record
from fedshot.setting import Setting
from fedshot.spec import Spec
from fedshot.store import RunFolder, read_spec, write_atomic
from fedshot.user_file import file_of

ORDER = "order.json"
Take = Callable[[int, Packet], Outcome]


def begin(spec: Spec, out: Path, plan: Plan, resume: bool = False) -> Setting:
    """Checks everything that can be wrong before a client is asked, and makes the folder of the run."""
    folder = RunFolder(out)
    setting = prepare(spec, plan.data_root, plan.device, folder.pretrained)
    complete = setting.spec
    if complete.evaluate_at != (complete.epochs,):
        raise UserError(
            "in a federation a client speaks once, at its end: leave --evaluate-at out; `fedshot run` shows the curve "
            "of the same spec in one process"
        )
    if file_of(complete.fusion):
        raise UserError(
            f"{complete.fusion}: clients run no code of the server's, and could not know what to send: end the run by "
            "a rule of ours, then try yours on its uploads: fedshot fuse RUN -f FILE.py"
        )
    if strangers := [number for number in plan.numbers if number >= complete.clients]:
        raise UserError(f"client {strangers[0]} takes part, and the run has clients 0 to {complete.clients - 1}")
    if plan.min_clients > len(plan.nodes):
        raise UserError(f"at least {plan.min_clients} clients are asked for, and {len(plan.nodes)} take part")
    _rehearsed(setting).rehearse()
    make_order(setting, "train", "", plan.sections)
    folder.check(complete)
    asked = (out / ORDER).exists()
    if not asked and any(out.glob("clients/*/*")):
        raise UserError(f"{out} holds a run in one process: choose another --out")
    if asked and not resume:
        raise UserError(
            f"{out} holds a run whose clients were asked already: add --resume to ask those that are missing, or "
            "choose another --out"
        )
    make_folder(setting, folder, resume=True)  # nothing that clients have sent is ever dropped
    write_plan(out, plan.model_copy(update={"directory": Path.cwd()}))
    return setting


def conduct(run: Path, transport: Transport, clock: Clock | None = None) -> Record:
    """What the server does, from a folder that `begin` made to the record. One that was stopped goes on."""
    plan, folder = read_plan(run), RunFolder(run.absolute())
    with _alone(run), chdir(plan.directory or Path.cwd()):
        return _Conductor(folder, plan, transport, clock or SystemClock()).conduct()


def _rehearsed(setting: Setting) -> Setting:
    """The setting with clients to try the method on: where they hold data of their own, the server's in their place."""
    if not setting.own:
        return setting
    labels = setting.data.train.labels.cpu().numpy()
    return replace(setting, partition=as_if_shared(setting.spec.clients, labels, setting.task.classes))


class _Conductor:
    """One server at work on one folder."""

    def __init__(self, folder: RunFolder, plan: Plan, transport: Transport, clock: Clock) -> None:
        self._folder, self._plan, self._transport, self._clock = folder, plan, transport, clock
        self._setting = prepare(read_spec(folder.spec), plan.data_root, plan.device, folder.pretrained)
        self._ledger = Ledger(folder.path / "ledger.jsonl")
        self._begin = clock.now()

    def conduct(self) -> Record:
        """The record of what arrived before the deadline; late uploads are kept for a later fusion."""
        self._ledger.note("begin", detail={"clients": len(self._plan.nodes)})
        order = self._order()
        awaited = [n for n in self._plan.numbers if self._folder.finished(n) is None]
        known = read_record(self._folder.record)
        if known is not None and not awaited and not self._came_later(known):
            return known
        collection = self._collection(order, Desk(self._setting, self._folder, order).take, awaited)
        collection.run(self._left(), self._left() + self._plan.late_seconds)
        try:
            record = self._finish(collection.missing)
        except OSError as error:
            event = "disk full" if is_full(error) else "failed"
            self._ledger.note(event, detail={"reason": f"the record cannot be written: {error}"})
            raise
        collection.run(self._plan.late_seconds, self._plan.late_seconds, late=True)
        self._ledger.note("end")
        return record

    def _came_later(self, record: Record) -> bool:
        """Whether an upload lies here of a client that the record misses."""
        return any(client.skipped and self._has_arrived(client.id) for client in record.clients)

    def _has_arrived(self, number: int) -> bool:
        return self._folder.finished(number) is not None and self._folder.upload(number).exists()

    def _left(self) -> float:
        return max(self._plan.deadline_seconds - (self._clock.now() - self._begin), 0.0)

    def _order(self) -> Order:
        """The order of the run: the one that was sent before, or a new one."""
        file = self._folder.path / ORDER
        if file.exists():
            return read_order(file.read_bytes())
        run = secrets.token_hex(16)
        announced = self._announced(run) if self._setting.method.phases == 2 else None
        send_job(self._setting, self._folder, announced)
        job = self._folder.job.read_bytes() if self._folder.job.exists() else None
        order = make_order(self._setting, "train", run, self._plan.sections, job)
        write_atomic(file, order.to_bytes())
        return order

    def _announced(self, run: str) -> torch.Tensor:
        """Class counts of the clients that told them in time, in the order of their numbers."""
        order, counts = make_order(self._setting, "announce", run), read_announced(self._folder)
        desk = Desk(self._setting, self._folder, order)

        def take(client: int, packet: Packet) -> Outcome:
            outcome = desk.take(client, packet)
            if outcome.counts is not None:
                counts[client] = outcome.counts
                write_announced(self._folder, counts)
            return outcome

        collection = self._collection(order, take, [n for n in self._plan.numbers if n not in counts])
        seconds = min(self._plan.announce_seconds, self._left())
        collection.run(seconds, seconds)
        if len(counts) < self._plan.min_clients:
            raise self._too_few(len(counts), collection.missing)
        return torch.tensor([counts[number] for number in sorted(counts)])

    def _collection(self, order: Order, take: Take, clients: list[int]) -> Collection:
        job = self._folder.job.read_bytes() if order.job_sha256 is not None else None
        question = Question(order.to_bytes(), order.sha256, job, self._plan.wait_seconds)
        return Collection(question, clients, take, self._transport, self._ledger, self._plan, self._clock)

    def _finish(self, missing: dict[int, str]) -> Record:
        """Fuses and scores what is there."""
        spec = self._setting.spec
        absent = {n: "does not take part" for n in range(spec.clients) if n not in self._plan.numbers} | missing
        for number, why in missing.items():
            self._ledger.note("missing", number, {"reason": why})
        arrived = [n for n in range(spec.clients) if self._has_arrived(n)]
        if len(arrived) < self._plan.min_clients:
            raise self._too_few(len(arrived), missing)
        record = finish_run(self._setting, self._folder, absent, self._plan.screen)
        for number, why in (record.screening.suspects if record.screening else {}).items():
            self._ledger.note("suspected", number, {"reason": why})
        self._ledger.note("record", detail={"clients": len(arrived), "result_sha256": record.result_sha256})
        return record

    def _too_few(self, arrived: int, missing: dict[int, str]) -> UserError:
        told = "; ".join(f"client {number}: {why}" for number, why in missing.items())
        error = UserError(
            f"{arrived} clients answered in time, and at least {self._plan.min_clients} are asked for ({told}): what "
            "arrived is kept, ask the others again by --resume"
        )
        self._ledger.note("too few", detail={"reason": str(error)})
        return error


@contextmanager
def _alone(run: Path) -> Iterator[None]:
    """One server in a folder at a time."""
    with (run / "server.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another server works on {run}: wait for it, or stop it") from None
        yield
