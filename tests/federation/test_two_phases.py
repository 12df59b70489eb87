"""Methods of two phases: class counts first, then the job that was made from them."""

from collections.abc import Callable
from typing import Any

import pytest

from fedshot.errors import UserError
from fedshot.federation.messages import Answer, Packet, Question, pack
from fedshot.federation.order import read_order
from fedshot.spec import Spec, make_spec
from fedshot.upload import parse

Make = Callable[..., Any]


@pytest.fixture
def made(divided: Make, federation: Make) -> Any:
    file = divided((24, range(6)), (20, range(4, 10)), (17, (1, 8)))
    spec = make_spec(method="split_announced", clients=3, partition_file=file, epochs=1, batch_size=16)
    return federation(spec)


def is_announcement(question: Question) -> bool:
    return read_order(question.order).kind == "announce"


def test_counts_come_first_and_the_job_is_made_from_them(made: Any, finished: Make) -> None:
    kinds: list[str] = []

    def noting(question: Question) -> Packet:
        kinds.append(read_order(question.order).kind)
        return made.answer(0, question)

    made.transport.handlers[0] = noting
    record = made.conduct()
    assert kinds == ["announce", "train"] and made.events(0) == [
        "online",
        "asked",
        "counts",
        "online",
        "asked",
        "delivered",
    ]
    alone = finished(made.spec)
    assert record.result_sha256 == alone.record.result_sha256
    assert record.cost.announced_bytes == alone.record.cost.announced_bytes == 8 * 30
    assert record.cost.job_bytes == alone.record.cost.job_bytes > 0


def test_one_that_does_not_announce_may_still_train(made: Any) -> None:
    made.transport.handlers[2] = lambda q: None if is_announcement(q) else made.answer(2, q)
    record = made.conduct(announce_seconds=60.0)
    assert [client.skipped for client in record.clients] == [None] * 3
    assert 60 <= made.clock.now() < 70


def test_too_few_announcements_make_no_job(made: Any) -> None:
    made.transport.offline |= {1, 2}
    with pytest.raises(UserError, match=r"1 clients answered in time, and at least 2 .*client 1: was not online"):
        made.conduct(announce_seconds=60.0, min_clients=2)
    assert not made.run.job.exists()
    made.transport.offline.clear()
    asked = len(made.transport.asked)
    made.conduct(resume=True, min_clients=2)
    assert sorted(made.transport.asked[asked:]) == [0, 1, 1, 2, 2]  # client 0 had announced


def test_counts_that_are_none_are_refused(made: Any) -> None:
    def lies(question: Question) -> Packet:
        if is_announcement(question):
            return pack(Answer(job=question.sha256, client=1, kind="counts", counts=(20,)))
        return made.answer(1, question)

    made.transport.handlers[1] = lies
    made.conduct()
    assert made.events(1)[:3] == ["online", "asked", "refused"] and made.standing(1).state == "delivered"


def test_an_upload_before_it_was_asked_for_is_refused(made: Any, one_epoch: Spec) -> None:
    def hasty(question: Question) -> Packet:
        if is_announcement(question):
            return pack(Answer(job=question.sha256, client=1, kind="upload"), b"weights")
        return made.answer(1, question)

    made.transport.handlers[1] = hasty
    made.conduct()
    assert made.events(1)[:3] == ["online", "asked", "refused"]


def test_a_client_that_withholds_its_counts_declines_both(made: Any) -> None:
    site = made.sites[1]
    site.write(site.read().model_copy(update={"counts": "withheld"}))
    record = made.conduct()
    assert "it declined: counts are withheld, but split_announced begins with" in (record.clients[1].skipped or "")
    assert record.clients[0].skipped is None


def test_a_server_that_died_after_it_made_the_job_sends_the_same_one(made: Any) -> None:
    made.conduct()
    order = (made.run.path / "order.json").read_bytes()
    (made.run.path / "record.json").unlink()
    (made.run.client(0) / "client.json").unlink()
    asked = len(made.transport.asked)
    made.go_on()
    assert (made.run.path / "order.json").read_bytes() == order and made.transport.asked[asked:] == [0]
    assert sorted(made.trained) == [0, 1, 2]


def test_only_the_sections_that_were_asked_for_leave(made: Any) -> None:
    made.conduct(sections=("moments",))
    assert parse(made.run.upload(0).read_bytes()).sections == {"weights", "moments"}
    job = made.sites[0].job(read_order((made.run.path / "order.json").read_bytes()).sha256)
    assert parse(job.upload(0).read_bytes()).sections > {"weights", "moments"}  # the rest stays with the client


def test_a_section_that_there_is_not(made: Any) -> None:
    with pytest.raises(UserError, match="an upload of this run has no section 'images'; it can have weights, moments"):
        made.conduct(sections=("images",))
