"""A federation without a network: clients in folders, a transport that delivers when its clock says so."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from fedshot.federation.conduct import begin, conduct
from fedshot.federation.labour import in_this_process
from fedshot.federation.ledger import Standing, read_ledger, standings
from fedshot.federation.messages import Packet, Question
from fedshot.federation.plan import Plan
from fedshot.federation.respond import respond
from fedshot.federation.share import write_shares
from fedshot.federation.site import JobFolder, Site, SiteFile
from fedshot.federation.transport import Failure, Reply
from fedshot.prepare import prepare
from fedshot.record import Record
from fedshot.spec import Spec, make_spec
from fedshot.store import RunFolder


class FakeClock:
    """Time goes on when somebody sleeps, and what was planned for that time happens."""

    def __init__(self) -> None:
        self.time = 0.0
        self.planned: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        due = [event for event in self.planned if event[0] <= self.time]
        self.planned = [event for event in self.planned if event[0] > self.time]
        for _, act in sorted(due, key=lambda event: event[0]):
            act()

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        self.planned.append((seconds, act))


Handler = Callable[[Question], Packet | str | None]  # an answer, why the message died, or None for no word at all


@dataclass
class FakeTransport:
    """Every client is a function from a question to an answer; `delay` seconds pass in between."""

    clock: FakeClock
    handlers: dict[int, Handler]
    delay: dict[int, float] = field(default_factory=dict)
    offline: set[int] = field(default_factory=set)
    keys: dict[int, int | None] = field(default_factory=dict)  # whose key a client uses, if not its own
    asked: list[int] = field(default_factory=list)
    lives: list[float] = field(default_factory=list)
    arrived: list[Reply | Failure] = field(default_factory=list)

    def online(self) -> frozenset[int]:
        return frozenset(self.handlers) - self.offline

    def push(self, client: int, question: Question, seconds: float) -> str:
        request = f"{client}/{len(self.asked)}"
        self.asked.append(client)
        self.lives.append(seconds)
        self.clock.at(self.clock.now() + self.delay.get(client, 0.0), lambda: self._answer(request, client, question))
        return request

    def _answer(self, request: str, client: int, question: Question) -> None:
        if client in self.offline:
            return  # a message to a node that has gone is not delivered again
        answer = self.handlers[client](question)
        if isinstance(answer, Packet):
            self.arrived.append(Reply(request, self.keys.get(client, client), answer))
        elif answer is not None:
            self.arrived.append(Failure(request, answer))

    def pull(self) -> Sequence[Reply | Failure]:
        arrived, self.arrived = self.arrived, []
        return arrived


@dataclass
class Federation:
    """Clients with their shares on disk, and a server."""

    folder: Path
    spec: Spec
    sites: list[Site]
    clock: FakeClock
    transport: FakeTransport
    trained: list[int] = field(default_factory=list)  # clients that trained, in order

    @property
    def run(self) -> RunFolder:
        return RunFolder(self.folder / "run")

    @property
    def uploads(self) -> list[Path]:
        """What the server keeps, by content."""
        return sorted((self.run.path / "uploads").glob("*"))

    def plan(self, **changes: object) -> Plan:
        nodes = {100 + number: number for number in range(self.spec.clients)}
        return Plan.model_validate({"nodes": nodes, "deadline_seconds": 600.0, "wait_seconds": 10.0, **changes})

    def conduct(self, resume: bool = False, **changes: object) -> Record:
        """A whole run."""
        begin(self.spec, self.run.path, self.plan(**changes), resume)
        return self.go_on()

    def go_on(self) -> Record:
        """The server, on the folder as it is."""
        return conduct(self.run.path, self.transport, self.clock)

    def events(self, client: int | None = None) -> list[str]:
        """What the ledger tells of a client."""
        entries = read_ledger(self.run.path / "ledger.jsonl")
        return [entry["event"] for entry in entries if entry["client"] == client]

    def standing(self, client: int) -> Standing:
        return standings(self.run.path / "ledger.jsonl", self.spec.clients)[client]

    def answer(self, number: int, question: Question) -> Packet:
        """What an honest client answers."""

        def train(site: Site, job: JobFolder, seconds: float) -> None:
            self.trained.append(number)
            in_this_process(site, job, seconds)

        return respond(self.sites[number], question, train)


Make = Callable[..., Federation]


@pytest.fixture(scope="session")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Spec, Path], list[Site]]:
    """The sites of all clients of a spec in a folder, each with its share of the partition."""
    shares: dict[str, list[Path]] = {}

    def make(spec: Spec, folder: Path) -> list[Site]:
        if spec.sha256 not in shares:
            setting = prepare(spec)
            shares[spec.sha256] = write_shares(setting.data, setting.partition, tmp_path_factory.mktemp("shares"))
        sites = [Site(folder / f"site-{number}") for number in range(spec.clients)]
        for number, site in enumerate(sites):
            site.write(SiteFile(name=f"clinic {number}", number=number, data=str(shares[spec.sha256][number])))
        return sites

    return make


@pytest.fixture
def federation(tmp_path: Path, settled: Callable[[Spec, Path], list[Site]]) -> Make:
    """A federation whose clients hold the shares of the spec's partition."""

    def make(spec: Spec, sites: list[Site] | None = None) -> Federation:
        clock = FakeClock()
        made = Federation(tmp_path, spec, sites or settled(spec, tmp_path), clock, FakeTransport(clock, {}))
        made.transport.handlers = {number: partial(made.answer, number) for number in range(spec.clients)}
        return made

    return make


@pytest.fixture(scope="session")
def one_epoch(divided: Callable[..., str]) -> Spec:
    """Three small clients and one epoch."""
    file = divided((24, range(6)), (20, range(4, 10)), (17, (1, 8)))
    return make_spec(method="fafi", clients=3, partition_file=file, epochs=1, batch_size=16)


@pytest.fixture(scope="session")
def _trained_sites(
    one_epoch: Spec, settled: Callable[[Spec, Path], list[Site]], tmp_path_factory: pytest.TempPathFactory
) -> list[Site]:
    return settled(one_epoch, tmp_path_factory.mktemp("trained"))


@pytest.fixture
def trained(
    one_epoch: Spec, _trained_sites: list[Site], federation: Make, monkeypatch: pytest.MonkeyPatch
) -> Federation:
    """A federation whose clients have trained before, for a run of the same name: they answer from disk."""
    monkeypatch.setattr("fedshot.federation.conduct.secrets.token_hex", lambda size: "0" * 2 * size)
    return federation(one_epoch, _trained_sites)
