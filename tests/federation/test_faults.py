"""Faults: nothing trained is lost, the run ends with what arrived, and the record says who is missing and why."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedshot.errors import UserError
from fedshot.federation import desk
from fedshot.federation.collect import GIVE_UP_SECONDS
from fedshot.federation.messages import Answer, Packet, Question, pack
from fedshot.federation.transport import TransportDown
from fedshot.prepare import prepare
from fedshot.record import Record
from fedshot.server import fuse_again
from fedshot.spec import Spec
from fedshot.store import write_atomic

Federation = Any  # of conftest.py


@pytest.fixture
def complete(trained: Federation, one_epoch: Spec, finished: Callable[[Spec], Any]) -> Callable[[Record], bool]:
    """Whether a record is that of the run in one process, with all clients."""
    return lambda record: record.result_sha256 == finished(one_epoch).record.result_sha256


def goes(made: Federation, client: int, seconds: float, back: float | None = None) -> None:
    """A client is offline from some time on, perhaps until another."""
    made.clock.at(seconds, lambda: made.transport.offline.add(client))
    if back is not None:
        made.clock.at(back, lambda: made.transport.offline.discard(client))


def only_first(made: Federation, client: int, first: Callable[[Question], Packet | str | None]) -> None:
    """A client that answers the first question in another way than the others."""
    answers: list[Callable[[Question], Packet | str | None]] = [first]

    def answer(question: Question) -> Packet | str | None:
        return answers.pop()(question) if answers else made.answer(client, question)

    made.transport.handlers[client] = answer


@pytest.mark.parametrize("moment", ["while it trained", "after it trained", "while it sent"])
def test_a_client_that_dies_and_comes_back_is_asked_again_and_trains_once(
    moment: str, federation: Any, one_epoch: Spec, complete: Callable[[Record], bool]
) -> None:
    made = federation(one_epoch)

    def dies(question: Question) -> str | None:
        if moment != "while it trained":
            made.answer(1, question)  # the upload is on its disk
        made.transport.offline.add(1)
        made.clock.at(made.clock.now() + 40, lambda: made.transport.offline.discard(1))
        return "the node went away" if moment == "while it sent" else None

    only_first(made, 1, dies)
    record = made.conduct()
    assert complete(record) and sorted(made.trained) == [0, 1, 2]
    lost = ["lost"] if moment == "while it sent" else []
    assert made.events(1) == ["online", "asked", "gone", *lost, "online", "asked", "delivered"]
    assert made.standing(1).retries == 1 and made.standing(1).state == "delivered"
    assert made.clock.now() < 100  # nobody waited for the deadline


def test_a_client_whose_training_fails_is_asked_again_but_not_for_ever(trained: Federation) -> None:
    failed = pack(Answer(job="", client=2, kind="failed", reason="CUDA error"))

    def fails(question: Question) -> Packet:
        return Packet(failed.answer.replace(b'"job":""', f'"job":"{question.sha256}"'.encode()))

    trained.transport.handlers[2] = fails
    record = trained.conduct(retries=3, retry_seconds=20.0)
    assert record.clients[2].skipped == "failed 4 times, last: CUDA error"
    assert trained.transport.asked.count(2) == 4 and 60 <= trained.clock.now() < 70
    assert trained.standing(2).state == "missing" and trained.standing(2).retries == 3


def test_a_client_that_fails_once_delivers_the_next_time(trained: Federation, complete: Any) -> None:
    only_first(trained, 0, lambda question: "Message unavailable")
    assert complete(trained.conduct())
    assert trained.events(0) == ["online", "asked", "lost", "asked", "delivered"]


def test_a_client_that_never_answers_is_asked_again_and_left_out_at_the_deadline(trained: Federation) -> None:
    trained.transport.handlers[1] = lambda question: None
    record = trained.conduct(deadline_seconds=200.0, wait_seconds=10.0, silence_seconds=50.0)
    assert record.clients[1].skipped == "was online and did not answer"
    assert [client.skipped for client in record.clients if client.id != 1] == [None, None]
    assert trained.events(1).count("asked") == 4 and 200 <= trained.clock.now() < 202
    assert trained.standing(1).reason == "was online and did not answer"
    assert max(trained.transport.lives) <= 200


def test_a_client_that_never_came_and_one_that_went(trained: Federation) -> None:
    trained.transport.offline.add(0)
    trained.transport.delay[2] = 100.0
    goes(trained, 2, 50.0)
    record = trained.conduct(deadline_seconds=300.0)
    assert record.clients[0].skipped == "was not online before the deadline"
    assert record.clients[2].skipped == "has gone before it answered"
    assert record.clients[1].upload_sha256 is not None
    assert record.final.accuracy > 0 and record.cost.models_kept == 1


def test_a_busy_client_is_asked_again_and_tells_how_far_it_is(federation: Any, one_epoch: Spec, complete: Any) -> None:
    made = federation(one_epoch)

    def busy(question: Question) -> Packet:
        if made.clock.now() < 100:
            return pack(Answer(job=question.sha256, client=1, kind="busy", epoch=7))
        return made.answer(1, question)

    made.transport.handlers[1], made.transport.delay[1] = busy, 10.0  # as long as a client waits
    assert complete(made.conduct())
    assert made.events(1)[:5] == ["online", "asked", "busy", "asked", "busy"]
    assert made.standing(1).retries == 0 and made.standing(1).asked >= 9


def test_a_client_that_still_trains_at_the_deadline_is_named_so(trained: Federation) -> None:
    trained.transport.handlers[0] = lambda q: pack(Answer(job=q.sha256, client=0, kind="busy", epoch=3))
    record = trained.conduct(deadline_seconds=50.0)
    assert record.clients[0].skipped == "was still training at the deadline, 3 epochs done"


def test_a_late_upload_is_kept_and_fused_afterwards_without_the_client(
    federation: Any, one_epoch: Spec, finished: Callable[[Spec], Any]
) -> None:
    made = federation(one_epoch)
    made.transport.delay[2] = 150.0
    record = made.conduct(deadline_seconds=100.0, late_seconds=100.0)
    assert record.clients[2].skipped == "has not answered before the deadline"
    assert [client.upload_sha256 is None for client in record.clients] == [False, False, True]
    assert made.events(2) == ["online", "asked", "missing", "late"] and made.standing(2).late
    asked = len(made.transport.asked)
    (row,) = fuse_again(prepare(one_epoch), made.run, ["features"])
    assert row["clients"] == [0, 1, 2] and len(made.transport.asked) == asked
    assert row["accuracy"] == finished(one_epoch).record.final.accuracy
    assert min(made.transport.lives) >= 199  # the question lived until the last late upload
    again = made.conduct(resume=True, deadline_seconds=100.0, late_seconds=0.0)  # the record that all three make
    assert again.result_sha256 == finished(one_epoch).record.result_sha256 and len(made.transport.asked) == asked
    assert made.conduct(resume=True, deadline_seconds=100.0, late_seconds=0.0) == again


def test_those_that_were_missing_are_asked_again_and_answer_from_disk(
    federation: Any, one_epoch: Spec, complete: Any
) -> None:
    made = federation(one_epoch)
    made.transport.delay[2] = 150.0
    first = made.conduct(deadline_seconds=100.0)
    assert first.clients[2].skipped
    made.clock.sleep(200)  # it has trained by now, and nobody listened
    assert sorted(made.trained) == [0, 1, 2]
    made.transport.delay[2], made.transport.arrived = 0.0, []
    asked = len(made.transport.asked)
    assert complete(made.conduct(resume=True))
    assert made.transport.asked[asked:] == [2] and sorted(made.trained) == [0, 1, 2]
    assert made.go_on().clients[2].skipped is None and made.transport.asked[asked:] == [2]


def test_a_folder_whose_clients_were_asked_is_not_begun_anew(trained: Federation) -> None:
    trained.conduct()
    before = trained.uploads
    with pytest.raises(UserError, match="asked already: add --resume"):
        trained.conduct()
    assert trained.uploads == before and len(before) == 3


def test_a_server_that_dies_goes_on_from_its_files(federation: Any, one_epoch: Spec, complete: Any) -> None:
    made = federation(one_epoch)
    made.transport.delay = {0: 0.0, 1: 20.0, 2: 40.0}
    pull = made.transport.pull

    def dies() -> Any:
        if made.clock.now() > 30:
            raise KeyboardInterrupt
        return pull()

    made.transport.pull = dies
    with pytest.raises(KeyboardInterrupt):
        made.conduct()
    assert [made.run.finished(k) is not None for k in range(3)] == [True, True, False]
    made.clock.sleep(100)
    made.transport.pull, made.transport.arrived, made.transport.asked = pull, [], []
    assert complete(made.go_on())
    assert made.transport.asked == [2] and sorted(made.trained) == [0, 1, 2]
    assert made.events().count("begin") == 2


def test_a_server_that_died_while_it_wrote_begins_no_second_training(trained: Federation, complete: Any) -> None:
    trained.conduct()
    for name in ("record.json", "telemetry.jsonl", "clients/1/client.json"):
        (trained.run.path / name).unlink()
    with (trained.run.path / "ledger.jsonl").open("ab") as ledger:
        ledger.write(b'{"time": "2026-11-1')  # torn
    trained.transport.asked = []
    assert complete(trained.go_on())
    assert trained.transport.asked == [1] and trained.standing(1).state == "delivered"


def test_two_servers_do_not_work_on_one_folder(trained: Federation) -> None:
    def second(question: Question) -> Packet:
        with pytest.raises(UserError, match="another server works on"):
            trained.go_on()
        return trained.answer(0, question)

    trained.transport.handlers[0] = second
    assert trained.conduct().clients[0].skipped is None


def test_an_answer_that_comes_twice_is_taken_once(trained: Federation, complete: Any) -> None:
    trained.transport.delay = {0: 100.0, 1: 200.0}
    record = trained.conduct(wait_seconds=10.0, silence_seconds=30.0)  # asked again before it answers
    assert complete(record)
    events = trained.events(0)
    assert events.count("delivered") == 1 and events.count("duplicate") == trained.standing(0).duplicates >= 1
    assert trained.standing(0).state == "delivered" and len(trained.uploads) == 3


def test_a_full_disk_of_the_server_is_told_and_nothing_is_lost(
    federation: Any, one_epoch: Spec, complete: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, full = federation(one_epoch), [True, True]

    def write(path: Path, content: bytes) -> None:
        if path.parent.name == "uploads" and full:
            full.pop()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_atomic(path, content)

    monkeypatch.setattr(desk, "write_atomic", write)
    record = made.conduct(retry_seconds=25.0, retries=0)
    assert complete(record) and sorted(made.trained) == [0, 1, 2]
    assert made.events(0) == ["online", "asked", "disk full", "asked", "delivered"]
    assert 25 <= made.clock.now() < 30


def test_a_disk_that_stays_full_is_the_reason_in_the_record(trained: Federation, monkeypatch: Any) -> None:
    def write(path: Path, content: bytes) -> None:
        if path.parent.name == "uploads" and trained.transport.asked[-1] == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_atomic(path, content)

    trained.transport.delay[2] = 20.0
    trained.transport.handlers[1] = trained.transport.handlers[1]
    monkeypatch.setattr(desk, "write_atomic", write)
    trained.transport.online = lambda: frozenset({0, 1} if trained.clock.now() < 10 else {0, 1, 2})
    record = trained.conduct(deadline_seconds=120.0)
    assert record.clients[2].skipped == "its upload could not be kept: the disk was full"
    assert trained.standing(2).state == "missing" and not list(trained.run.path.rglob("*.part"))


def test_a_record_that_cannot_be_written_is_told_and_made_later(
    trained: Federation, complete: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as patch:
        patch.setattr("fedshot.experiment.write_atomic", full)
        with pytest.raises(OSError, match="No space left"):
            trained.conduct()
    assert trained.events()[-1] == "disk full" and len(trained.uploads) == 3
    trained.transport.asked = []
    assert complete(trained.go_on()) and trained.transport.asked == []


@pytest.mark.parametrize("late", [0.0, 50.0])
def test_too_few_clients_make_no_record_and_are_kept(late: float, trained: Federation, complete: Any) -> None:
    trained.transport.offline.add(1)
    with pytest.raises(UserError, match=r"2 clients answered in time, and at least 3 .*client 1: was not online"):
        trained.conduct(min_clients=3, deadline_seconds=30.0, late_seconds=late)
    assert not trained.run.record.exists() and len(trained.uploads) == 2
    assert trained.events()[-1] == "too few"
    trained.transport.offline.clear()
    assert complete(trained.conduct(resume=True, min_clients=3))


def test_a_transport_that_is_down_for_a_while(trained: Federation, complete: Any) -> None:
    online, pull = trained.transport.online, trained.transport.pull

    def down(when_up: Callable[[], Any]) -> Callable[[], Any]:
        def call() -> Any:
            if 5 < trained.clock.now() < 100:
                raise TransportDown("connection refused")
            return when_up()

        return call

    def broken_off() -> Iterator[Any]:
        yield from pull()
        if 2 < trained.clock.now() < 4:
            raise TransportDown("broken off")

    trained.transport.delay = {1: 50.0}
    trained.transport.online, trained.transport.pull = down(online), down(lambda: list(broken_off()))
    assert complete(trained.conduct())
    assert trained.events().count("transport down") == 2


def test_a_transport_that_stays_down_ends_the_server(trained: Federation) -> None:
    def down() -> frozenset[int]:
        raise TransportDown("connection refused")

    trained.transport.online = down
    with pytest.raises(TransportDown, match="connection refused"):
        trained.conduct()
    assert GIVE_UP_SECONDS <= trained.clock.now() < GIVE_UP_SECONDS + 5


def test_a_question_that_the_engine_does_not_take_is_that_clients_failure_alone(trained: Federation) -> None:
    push = trained.transport.push
    trained.transport.push = lambda client, *more: None if client == 1 else push(client, *more)
    record = trained.conduct(retries=2, retry_seconds=5.0)
    assert record.clients[1].skipped == "failed 3 times, last: the question was not taken by the engine"
    assert record.clients[0].skipped is record.clients[2].skipped is None
