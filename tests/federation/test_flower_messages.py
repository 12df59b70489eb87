"""The federation over Flower, without its processes: what is packed comes out again, and whose an answer is."""

from collections.abc import Iterable
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr", reason="the extra fedshot[flower] is not installed")
from flwr.app import Context, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedshot.engines.flower import FlowerTransport, client_app, packet_in, packet_record, question_in, question_record
from fedshot.federation.messages import Packet, Question, unpack
from fedshot.federation.transport import Failure, Reply, TransportDown

QUESTION = Question(b'{"order": 1}', "a" * 64, b"tensors", 30.0)


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages know who makes them."""
    for name in ("run_id", "node_id", "task_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


class Grid:
    """Keeps what is pushed; answers as a test says."""

    def __init__(self) -> None:
        self.pushed: dict[str, Message] = {}
        self.replies: dict[str, Message] = {}
        self.nodes: Any = [11, 22, 99]

    def get_node_ids(self) -> Iterable[int]:
        if isinstance(self.nodes, Exception):
            raise self.nodes
        return self.nodes

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str | None]:
        if isinstance(self.nodes, Exception):
            raise self.nodes
        (message,) = messages
        name = f"m{len(self.pushed)}"
        message.metadata.__dict__["_message_id"] = name
        self.pushed[name] = message
        return [name]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(name) for name in message_ids if name in self.replies]

    def reply(self, name: str, content: RecordDict | Error, node: int) -> None:
        self.replies[name] = message = Message(content, reply_to=self.pushed[name])  # type: ignore[call-overload]
        message.metadata.__dict__["_src_node_id"] = node


@pytest.fixture
def grid() -> Grid:
    return Grid()


@pytest.fixture
def transport(grid: Grid) -> FlowerTransport:
    return FlowerTransport(grid, {11: 0, 22: 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("job", [b"tensors", None, b""])
def test_a_question_comes_out_as_it_went_in(job: bytes | None) -> None:
    question = Question(b"order", "sha", job, 5.0)
    assert question_in(question_record(question)) == question


@pytest.mark.parametrize("upload", [bytes(range(256)) * 100, None])
def test_an_answer_comes_out_as_it_went_in(upload: bytes | None) -> None:
    packet = Packet(b'{"kind": "upload"}', upload)
    record = packet_record(packet)
    assert packet_in(record) == packet
    assert sum(len(arrays) for arrays in record.array_records.values()) == (upload is not None)


def test_a_message_that_is_none_of_ours_is_an_answer_that_the_desk_refuses() -> None:
    with pytest.raises(ValueError, match="not an answer of ours"):
        unpack(packet_in(RecordDict()))


def test_only_registered_nodes_are_online(transport: FlowerTransport) -> None:
    assert transport.online() == {0, 1}


def test_the_node_says_who_answers_and_the_request_what_is_answered(grid: Grid, transport: FlowerTransport) -> None:
    first, second, third = (
        transport.push(0, QUESTION, 60.0),
        transport.push(1, QUESTION, 60.0),
        transport.push(1, QUESTION, 5.0),
    )
    assert grid.pushed[first].metadata.dst_node_id == 11 and grid.pushed[first].metadata.ttl == 60.0
    assert question_in(grid.pushed[second].content) == QUESTION
    assert list(transport.pull()) == []
    grid.reply(first, packet_record(Packet(b"{}", b"upload")), node=22)
    grid.reply(second, packet_record(Packet(b"{}")), node=99)
    grid.reply(third, Error(3, "node\nunavailable"), node=1)  # as the engine writes errors
    assert list(transport.pull()) == [
        Reply(first, 1, Packet(b"{}", b"upload")),
        Reply(second, None, Packet(b"{}")),
        Failure(third, "node unavailable"),
    ]
    assert list(transport.pull()) == []


def test_an_engine_that_is_away_is_a_transport_that_is_down(grid: Grid, transport: FlowerTransport) -> None:
    grid.nodes = httpx.ConnectError("connection refused")
    with pytest.raises(TransportDown, match="connection refused"):
        transport.online()
    with pytest.raises(TransportDown, match="the question to client 0 could not be sent: connection refused"):
        transport.push(0, QUESTION, 60.0)


def test_the_app_of_a_client_answers_in_its_own_words(tmp_path: Any, settled: Any, one_epoch: Any) -> None:
    site = settled(one_epoch, tmp_path)[1]
    question = Message(question_record(Question(b"no order", "a" * 64)), 22, "train")
    question.metadata.__dict__["_message_id"] = "m0"
    context = Context(1, 22, {"site": str(site.path)}, RecordDict(), {})
    reply = client_app(question, context)
    answer = unpack(packet_in(reply.content))
    assert (answer.kind, answer.client) == ("refused", 1) and "altered on its way" in (answer.reason or "")
    assert reply.metadata.reply_to_message_id == "m0"
