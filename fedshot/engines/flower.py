"""The federation over Flower: the two apps, and messages carried by its Message API. The only module that imports it.

An app folder names `fedshot.engines.flower:server_app` and `:client_app`. The run's configuration says where the run's
folder is (`run`), a node's where the client's folder is (`site`).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedshot.federation.messages import Packet, Question, printable
from fedshot.federation.plan import read_plan
from fedshot.federation.respond import respond
from fedshot.federation.site import Site
from fedshot.federation.transport import Failure, Reply, TransportDown

server_app = ServerApp()
client_app = ClientApp()


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """One run, from the order to the record and the last late upload."""
    from fedshot.federation.conduct import conduct  # a client that waits has no need of torch

    run = Path(str(context.run_config["run"]))
    conduct(run, FlowerTransport(grid, read_plan(run).nodes))


@client_app.train()
def answer(message: Message, context: Context) -> Message:
    """One question to a client."""
    packet = respond(Site(Path(str(context.node_config["site"]))), question_in(message.content))
    return Message(packet_record(packet), reply_to=message)


class FlowerTransport:
    """Messages over a grid. Whose an answer is, is decided by the node that sent it."""

    def __init__(self, grid: Grid, nodes: Mapping[int, int]) -> None:
        self._grid, self._numbers = grid, dict(nodes)
        self._nodes = {number: node for node, number in nodes.items()}
        self._open: set[str] = set()

    def online(self) -> frozenset[int]:
        try:
            return frozenset(self._numbers[node] for node in self._grid.get_node_ids() if node in self._numbers)
        except httpx.HTTPError as error:
            raise TransportDown(str(error)) from error

    def push(self, client: int, question: Question, seconds: float) -> str | None:
        message = Message(question_record(question), self._nodes[client], MessageType.TRAIN, ttl=seconds)
        try:
            taken = [request for request in self._grid.push_messages([message]) if request]
        except httpx.HTTPError as error:
            raise TransportDown(f"the question to client {client} could not be sent: {error}") from error
        self._open.update(taken)
        return taken[0] if taken else None

    def pull(self) -> Iterator[Reply | Failure]:
        for request in sorted(self._open):  # one by one: memory then holds one upload at a time
            try:
                messages = list(self._grid.pull_messages([request]))
            except httpx.HTTPError as error:
                raise TransportDown(str(error)) from error
            for message in messages:
                self._open.discard(request)
                yield self._opened(request, message)

    def _opened(self, request: str, message: Message) -> Reply | Failure:
        if message.has_error():
            return Failure(request, printable(message.error.reason or f"error {message.error.code}"))
        return Reply(request, self._numbers.get(message.metadata.src_node_id), packet_in(message.content))


def question_record(question: Question) -> RecordDict:
    """A question as Flower carries it."""
    config = ConfigRecord(
        {"order": question.order, "sha256": question.sha256, "wait_seconds": float(question.wait_seconds)}
    )
    return RecordDict({"question": config, **_bytes_record("job", question.job)})


def question_in(content: RecordDict) -> Question:
    """The question in a message."""
    config = content.config_records["question"]
    order, sha256, wait = config["order"], config["sha256"], config["wait_seconds"]
    if not isinstance(order, bytes) or not isinstance(sha256, str) or not isinstance(wait, float):
        raise ValueError("not a question of ours")
    return Question(order, sha256, _bytes_in("job", content), wait)


def packet_record(packet: Packet) -> RecordDict:
    """An answer as Flower carries it: its upload is one array."""
    return RecordDict({"answer": ConfigRecord({"json": packet.answer}), **_bytes_record("upload", packet.upload)})


def packet_in(content: RecordDict) -> Packet:
    """The answer in a message; an empty one where there is none: the desk refuses it."""
    answer = content.config_records.get("answer", ConfigRecord()).get("json")
    return Packet(answer if isinstance(answer, bytes) else b"", _bytes_in("upload", content))


def _bytes_record(name: str, data: bytes | None) -> dict[str, ArrayRecord]:
    if data is None:
        return {}
    return {name: ArrayRecord({"bytes": Array("uint8", (len(data),), "bytes", data)})}


def _bytes_in(name: str, content: RecordDict) -> bytes | None:
    record = content.array_records.get(name)
    return record["bytes"].data if record is not None and "bytes" in record else None
