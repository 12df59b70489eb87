"""A federation of real processes on the loopback interface: TLS, keys, three clients, and what can happen to them.

The third client reaches the engine through a proxy that lets pass what the configuration of nginx lets pass.
"""

import hashlib
import http.client
import os
import shutil
import signal
import sqlite3
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol

import pytest

from fedshot.errors import UserError
from fedshot.federation.authority import make_authority, make_key_pair
from fedshot.federation.bundle import read_bundle
from fedshot.federation.engine import Control, answers
from fedshot.federation.joining import check_server, connect, leave, services, settle
from fedshot.federation.labour import epoch_of, is_held
from fedshot.federation.launch import Launched, finished, follow, launch, nodes_of
from fedshot.federation.layout import Federation, Member, ServerFolder
from fedshot.federation.ledger import read_ledger
from fedshot.federation.lookout import Lookout
from fedshot.federation.operations import bring_up, found, online, take_down
from fedshot.federation.operations import services as server_services
from fedshot.federation.plan import Plan
from fedshot.federation.processes import Service, free_port
from fedshot.federation.proxy import nginx_configuration, passes, speaks_ipv6
from fedshot.federation.share import write_shares
from fedshot.federation.site import JobFolder, Site
from fedshot.prepare import prepare
from fedshot.record import Record
from fedshot.spec import Spec
from fedshot.store import write_atomic


class Finished(Protocol):
    """A run in this process that is over."""

    record: Record


CONTROL = "/v1/control/list-nodes"


class Gate(ThreadingHTTPServer):
    """A proxy with TLS that lets pass what `passes` lets pass, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, server: ServerFolder, engine_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Passage)
        self.engine_port, self.context = engine_port, ssl.create_default_context(cafile=str(server.authority[0]))
        own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        own.load_cert_chain(server.certificate, server.key)
        self.socket = own.wrap_socket(self.socket, server_side=True)
        self.seen: list[tuple[str, bool]] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no error of the proxy's."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Passage(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Gate

    def _pass_on(self) -> None:
        goes = passes(self.command, self.path)
        self.server.seen.append((self.path, goes))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not goes:
            self._answer(403, [], b"")
            return
        inner = http.client.HTTPSConnection("127.0.0.1", self.server.engine_port, context=self.server.context)
        with closing(inner):
            inner.request(self.command, self.path, body, dict(self.headers))
            reply = inner.getresponse()
            self._answer(reply.status, reply.getheaders(), reply.read())

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _pass_on


@dataclass(frozen=True)
class Running:
    """A federation that is up."""

    server: ServerFolder
    sites: list[Site]
    gate: Gate
    intruder: int  # the engine's number of a run with code of its own

    def launch(self, spec: Spec, run: Path, resume: bool = False) -> Launched:
        plan = Plan(nodes=nodes_of(self.server), deadline_seconds=90, retry_seconds=0.5, poll_seconds=0.2)
        return launch(self.server, spec, run, plan, resume)

    @property
    def engine_pid(self) -> int:
        pid = server_services(self.server)[0].pid()
        assert pid is not None
        return pid

    def jobs(self, launched: Launched) -> list[JobFolder]:
        """The folders of a run's job at the clients, once it has been sent."""
        order = launched.run / "order.json"
        until(order.exists)
        name = hashlib.sha256(order.read_bytes()).hexdigest()
        return [site.job(name) for site in self.sites]


def until(condition: Callable[[], object], seconds: float = 40.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.02)


def ended(launched: Launched) -> Record:
    for _ in follow(launched):
        pass
    return finished(launched)


@contextmanager
def gate_of(server: ServerFolder, engine_port: int) -> Iterator[Gate]:
    gate = Gate(server, engine_port)
    thread = threading.Thread(target=gate.serve_forever, daemon=True)
    thread.start()
    yield gate
    gate.shutdown()
    gate.server_close()
    thread.join()


@pytest.fixture(scope="module")
def spec(quick: Callable[..., Spec]) -> Spec:
    return quick("fafi", evaluate_at=())


@pytest.fixture(scope="module")
def running(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server and three clients, each with its share of the spec's partition."""
    place = tmp_path_factory.mktemp("a federation")  # with a blank in its path
    setting, server = prepare(spec), ServerFolder(place / "server")
    shares = write_shares(setting.data, setting.partition, place / "shares")
    members = tuple(Member(number=k, name=f"client-{k}") for k in range(3))
    federation = Federation(host="localhost", engine_port=free_port(), members=members)
    found(server, federation)
    sites: list[Site] = []
    try:
        bring_up(server, True, print)
        with gate_of(server, federation.engine_port) as gate:
            for k in range(3):
                changes = {"data": str(shares[k])}
                if k == 2:
                    changes["server"] = gate.address
                sites.append(settle(server.bundle(f"client-{k}"), place / f"site-{k}", changes))
                connect(sites[k])
            yield Running(server, sites, gate, intrude(server))
    finally:
        with ThreadPoolExecutor() as pool:
            list(pool.map(leave, sites))
        take_down(server)
    assert [command for _, _, command in processes() if str(place) in command] == []


def processes() -> list[tuple[int, int, str]]:
    """Id, parent and command of every living process; commands are whole, however narrow the terminal (-ww)."""
    columns = ["ps", "-eww", "-o", "pid=,ppid=,stat=,args="]
    listed = subprocess.run(columns, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 3) for line in listed.splitlines()]
    return [(int(row[0]), int(row[1]), row[3]) for row in rows if not row[2].startswith("Z") and len(row) == 4]


def test_the_record_is_that_of_a_run_in_this_process(
    running: Running, spec: Spec, finished: Callable[[Spec], Finished], tmp_path: Path
) -> None:
    record = ended(running.launch(spec, tmp_path / "run"))
    local = finished(spec).record
    assert [c.upload_sha256 for c in record.clients] == [c.upload_sha256 for c in local.clients]
    assert record.result_sha256 == local.result_sha256
    assert online(running.server) == dict.fromkeys(range(3), "online")
    through = {path for path, goes in running.gate.seen if goes}
    assert {"/v1/fleet/activate-node", "/v1/fleet/pull-messages", "/v1/fleet/push-object"} <= through
    assert all(goes for _, goes in running.gate.seen)


def test_the_control_path_is_closed_to_those_who_come_through_the_proxy(running: Running) -> None:
    authority = running.server.authority[0]
    assert answers(f"127.0.0.1:{running.server.read().engine_port}", authority, CONTROL, b"") != 403
    assert answers(running.gate.address, authority, CONTROL, b"") == 403
    assert answers(running.gate.address, authority, "/v1/fleet/../control/list-nodes", b"") == 403
    assert answers(running.gate.address, authority) == 200


@pytest.mark.skipif(shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is None, reason="needs nginx")
def test_nginx_does_the_same(running: Running, tmp_path: Path) -> None:
    nginx, port = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"), free_port()
    federation = running.server.read().model_copy(update={"port": port})
    proxy, conf = Service(tmp_path / "processes", "nginx"), tmp_path / "nginx.conf"
    text = nginx_configuration(running.server, federation, speaks_ipv6())
    conf.write_text(text.replace(str(running.server.processes), str(proxy.folder)))
    proxy.start([str(nginx), "-c", str(conf), "-p", str(proxy.folder), "-g", "daemon off;"], os.environ, tmp_path)
    authority, address = running.server.authority[0], f"127.0.0.1:{port}"
    try:
        until(lambda: _answers_now(address, authority), 10)
        fleet = answers(f"127.0.0.1:{federation.engine_port}", authority, "/v1/fleet/pull-messages", b"")
        assert answers(address, authority, "/v1/fleet/pull-messages", b"") == fleet != 403
        for path in (CONTROL, "/v1/fleet/register-node", "/v1/fleet/../control/list-nodes", "/docs"):
            assert answers(address, authority, path, b"") == 403
    finally:
        assert proxy.stop() >= 2
    assert proxy.pid() is None


def _answers_now(address: str, authority: Path) -> bool:
    try:
        return answers(address, authority) == 200
    except OSError:
        return False


def test_a_key_that_the_server_does_not_know_is_refused(running: Running, tmp_path: Path) -> None:
    bundle = tmp_path / "stranger.join"
    known = read_bundle(running.server.bundle("client-0"))
    write_atomic(bundle, known.model_copy(update={"key": make_key_pair("x").private}).model_dump_json().encode())
    site = settle(bundle, tmp_path / "stranger", {"data": "digits"})
    assert check_server(site.read()) is None
    lookout = Lookout(site)
    connect(site)
    try:
        until(lambda: lookout.refused, 20)
        assert not lookout.connected
    finally:
        leave(site)


def test_a_server_of_another_authority_is_no_server(running: Running, tmp_path: Path) -> None:
    make_authority(tmp_path / "ca.crt", tmp_path / "ca.key", "another")
    settings = running.sites[0].read().model_copy(update={"certificate": tmp_path / "ca.crt"})
    with pytest.raises(UserError, match="is not the server of this federation"):
        check_server(settings)
    down = settings.model_copy(update={"server": f"127.0.0.1:{free_port()}"})
    assert "cannot be reached" in (check_server(down) or "")


def test_code_that_is_sent_to_the_control_path_is_not_run(running: Running) -> None:
    control, trace = Control(running.server), running.server.path.parent / "trace"
    until(lambda: control.state(running.intruder)[0].startswith("finished"))
    state, why = control.state(running.intruder)
    assert state == "finished:failed"
    assert "the server sent code (evil.py)" in why
    assert not trace.exists()


def intrude(server: ServerFolder) -> int:
    """A run with code of its own, as whoever reaches the control path could start it; the engine's number of it."""
    place = server.path.parent
    app = place / "app"
    shutil.copytree(server.app, app)
    (app / "pyproject.toml").write_text((app / "pyproject.toml").read_text().replace("fedshot.engines.flower", "evil"))
    code = f"open({str(place / 'trace')!r}, 'w')\nserver_app = None\nclient_app = None\n"
    (app / "evil.py").write_text(code)
    stranger = ServerFolder(server.path)
    stranger.app = app
    return Control(stranger).start(place)


def test_nothing_trained_is_lost(
    running: Running, spec: Spec, finished: Callable[[Spec], Finished], tmp_path: Path
) -> None:
    """Killed while it trains, killed when it has trained, hung, and the server killed: the record is the same."""
    longer = spec.model_copy(update={"epochs": 20})
    settle(running.sites[2].path, None, {"stall_seconds": 4.0})
    launched = running.launch(longer, tmp_path / "run")
    jobs = running.jobs(launched)
    _, answering = services(running.sites[1])

    untouched = {0, 1, 2}

    def all_struck() -> bool:
        for number in sorted(untouched):
            job = jobs[number]
            if number == 1:  # it will have trained, and cannot answer
                victim = app_of(running.sites[1]) if is_held(job.lock) else None
            else:
                victim = int(job.lock.read_text()) if is_held(job.lock) and epoch_of(job) >= 1 else None
            if victim is not None:
                with suppress(ProcessLookupError):  # it has just ended: the next one is struck
                    os.kill(victim, signal.SIGKILL if number == 0 else signal.SIGSTOP)
                    untouched.remove(number)
        return not untouched

    until(all_struck, 80.0)
    until(jobs[1].outgoing.exists)
    trained = jobs[1].outgoing.stat().st_mtime_ns
    answering.stop(0.0)
    until(lambda: jobs[0].outgoing.exists() and jobs[2].outgoing.exists())
    os.kill(running.engine_pid, signal.SIGKILL)
    bring_up(running.server, True, print)
    forget_connection(running.server, 1)
    connect(running.sites[1])
    record = ended(running.launch(longer, launched.run, resume=True))
    assert record.result_sha256 == finished(longer).record.result_sha256
    assert jobs[1].outgoing.stat().st_mtime_ns == trained  # answered from disk
    told = [entry["event"] for entry in read_ledger(launched.run / "ledger.jsonl")]
    assert told.count("begin") == 2
    assert told.count("delivered") == 3


def app_of(site: Site) -> int | None:
    """The process that answers a question at a client, if there is one at this moment."""
    living, engine = processes(), services(site)[1].pid()
    executors = {pid for pid, parent, _ in living if parent == engine}
    return next((pid for pid, parent, command in living if parent in executors and "flwr-clientapp" in command), None)


def forget_connection(server: ServerFolder, number: int) -> None:
    """The engine takes a client that was killed for connected for one minute more; a test does not wait so long."""
    node = {k: node for node, k in nodes_of(server).items()}[number]
    signed = node - 2**64 if node >= 2**63 else node  # as the database keeps it
    with closing(sqlite3.connect(server.engine / "state.db", timeout=10)) as state, state:
        state.execute("update node set online_until = 0 where node_id = ?", (signed,))
