"""A client's training in a process of its own: killed, hung, stopped, waiting for another; and what is on disk then."""

import errno
import hashlib
import json
import os
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedshot.federation import training
from fedshot.federation.labour import end, end_all, end_if_stalled, epoch_of, failure_of, in_this_process, is_held
from fedshot.federation.messages import Answer, Question, unpack
from fedshot.federation.order import make_order
from fedshot.federation.respond import respond
from fedshot.federation.site import JobFolder, Site
from fedshot.prepare import prepare
from fedshot.spec import Spec, make_spec
from fedshot.store import write_atomic

METHOD = """
import time
from dataclasses import replace
from pathlib import Path

from fedshot.local.objective import Objective, Term
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import FAFI_TERMS

MOOD = Path({mood!r})


def moody() -> Method:
    def objective(client: Client) -> Objective:
        def act(step):
            mood = MOOD.read_text() if MOOD.exists() else ""
            if mood == "slow":
                time.sleep(0.1)
            if mood == "hang" and step.progress >= 0.3:
                time.sleep(1000)
            return 0.0 * step.logits.mean()

        return Objective((*FAFI_TERMS, Term("mood", act)))

    return replace(fafi(), name="moody", objective=objective)
"""


class Client:
    """A client whose method does as its mood says, and the server that asks it."""

    def __init__(self, site: Site, spec: Spec, mood: Path) -> None:
        self.site, self.mood, self.setting = site, mood, prepare(spec)
        self.asked: list[JobFolder] = []

    def ask(self, seconds: float, run: str = "one") -> Answer:
        order = make_order(self.setting, "train", run)
        self.asked.append(self.site.job(order.sha256))
        return unpack(respond(self.site, Question(order.to_bytes(), order.sha256, None, seconds)))

    @property
    def job(self) -> JobFolder:
        return self.asked[-1]


@pytest.fixture
def client(divided: Callable[..., str], settled: Any, tmp_path: Path) -> Any:
    file = tmp_path / "moody.py"
    file.write_text(METHOD.format(mood=str(tmp_path / "mood")))
    spec = make_spec(method=str(file), clients=1, partition_file=divided((24, range(6))), epochs=10, batch_size=16)
    (site,) = settled(spec, tmp_path)
    changes = {"files": (file,), "stall_seconds": 30.0, "checkpoint_seconds": 0.0}
    site.write(site.read().model_copy(update=changes))
    made = Client(site, spec, tmp_path / "mood")
    yield made
    end_all(site)


def until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up, "it did not happen in time"
        time.sleep(0.02)


def calm(client: Client, stall_seconds: float, mood: str) -> None:
    """Another mood for the next training process, and another patience."""
    client.mood.write_text(mood)
    client.site.write(client.site.read().model_copy(update={"stall_seconds": stall_seconds}))


def test_killed_and_hung_and_still_the_same_upload(client: Client, finished: Any) -> None:
    calm(client, 30.0, "slow")
    assert client.ask(0.0).kind == "busy"
    until(lambda: epoch_of(client.job) >= 2)
    busy = client.ask(0.0)
    assert busy.kind == "busy" and (busy.epoch or 0) >= 2  # the one process goes on
    assert end(client.job)
    until(lambda: not is_held(client.job.lock))
    assert not end(client.job) and failure_of(client.job)[0].startswith("its training process died")

    calm(client, 3.0, "hang")
    hung = client.ask(120.0)
    assert hung.kind == "failed" and "no step for too long, and was ended by its watchdog" in (hung.reason or "")
    assert "moody.py" in client.job.log.read_text()  # where it hung
    assert epoch_of(client.job) >= 2  # it had gone on from its checkpoint

    calm(client, 30.0, "")
    done = client.ask(120.0)
    assert done.kind == "upload" and len(done.telemetry) == 10
    before = client.job.outgoing.stat().st_mtime_ns
    assert client.ask(0.0) == done and client.job.outgoing.stat().st_mtime_ns == before  # from disk
    assert client.job.upload(0).read_bytes() == finished(client.setting.spec).folder.upload(0).read_bytes()


HOLDER = """
import fcntl, os, signal, sys
with open(sys.argv[1], "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write(str(os.getpid()))
    lock.flush()
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_process_that_is_stopped_with_its_watchdog_is_ended_by_whoever_asks(tmp_path: Path) -> None:
    job = JobFolder(tmp_path)
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(job.lock)]) as process:
        until(lambda: is_held(job.lock) and job.lock.read_text() != "")
        write_atomic(job.progress, b'{"epoch": 3, "patience": 1000}')
        end_if_stalled(job)
        assert process.poll() is None
        write_atomic(job.progress, b'{"epoch": 3, "patience": 0.001}')
        time.sleep(0.05)
        end_if_stalled(job)
        assert process.wait(10) == -9 and not is_held(job.lock)


def test_a_second_job_waits_for_the_first(client: Client) -> None:
    calm(client, 30.0, "slow")
    client.ask(0.0, "first")
    until(lambda: is_held(client.site.path / "training.lock"))
    client.ask(0.0, "second")
    until(lambda: is_held(client.job.lock))
    assert epoch_of(client.job) == 0
    client.mood.write_text("")
    assert client.ask(120.0, "second").kind == "upload"
    assert client.ask(0.0, "first").kind == "upload"  # it had ended before


def test_a_job_that_cannot_be_is_refused_for_good(client: Client) -> None:
    client.site.write(client.site.read().model_copy(update={"files": ()}))
    refused = client.ask(120.0)
    assert refused.kind == "refused" and "this client was not given it" in (refused.reason or "")


def test_a_full_disk_is_told_before_a_second_is_trained(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")(1000)
    order = make_order(client.setting, "train", "one")
    question = Question(order.to_bytes(), order.sha256)
    with monkeypatch.context() as patch:
        patch.setattr(training.shutil, "disk_usage", lambda path: usage)
        answer = unpack(respond(client.site, question, in_this_process))
    assert answer.kind == "failed" and "No space left on device: 1,000 bytes are free" in (answer.reason or "")
    assert unpack(respond(client.site, question, in_this_process)).kind == "upload"


def test_a_disk_that_fills_up_at_the_end_costs_the_last_epoch_alone(
    client: Client, monkeypatch: pytest.MonkeyPatch, finished: Any
) -> None:
    order = make_order(client.setting, "train", "one")
    question, job = Question(order.to_bytes(), order.sha256), client.site.job(order.sha256)

    def full(path: Path, content: bytes) -> None:
        if path.name == "upload.safetensors":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_atomic(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("fedshot.store.write_atomic", full)
        answer = unpack(respond(client.site, question, in_this_process))
    assert answer.kind == "failed" and "No space left" in (answer.reason or "")
    assert job.checkpoint(0).exists()
    began = time.time()
    assert unpack(respond(client.site, question, in_this_process)).kind == "upload"
    assert job.upload(0).stat().st_mtime > began
    assert job.upload(0).read_bytes() == finished(client.setting.spec).folder.upload(0).read_bytes()


def test_tensors_or_an_order_that_were_altered_are_refused(client: Client) -> None:
    order = make_order(client.setting, "train", "one")
    told = json.loads(order.to_bytes())

    def written(content: Any) -> Question:
        text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        return Question(text, hashlib.sha256(text).hexdigest())

    for question, reason in (
        (Question(order.to_bytes() + b" ", order.sha256), "altered on its way"),
        (Question(order.to_bytes(), "0" * 64), "altered on its way"),
        (Question(order.to_bytes(), order.sha256, b"tensors"), "are not those whose hash it names"),
        (written({**told, "fedshot": "9.9"}), "the order is of fedshot 9.9, and this is"),
        (written({**told, "kind": "obey"}), "not an order: kind"),
        (written({**told, "command": "rm"}), "not an order: command"),
        (written([1]), "not an order: it is no JSON of ours"),
    ):
        answer = unpack(respond(client.site, question))
        assert answer.kind == "refused" and reason in (answer.reason or "")
    assert not (client.site.path / "jobs").exists()


def test_a_client_that_waits_has_no_need_of_torch() -> None:
    code = "import sys, fedshot.federation.respond as r; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
