"""The server's operator: founds a federation, brings it up, takes it down."""

import ipaddress
import shutil
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedshot.errors import UserError, unknown
from fedshot.federation.authority import expiry, make_authority, make_key_pair, make_server_certificate
from fedshot.federation.bundle import Bundle, read_bundle, write_bundle
from fedshot.federation.engine import Control, EngineRefused, answers, environment, require_engine, server_command
from fedshot.federation.layout import Federation, Member, ServerFolder, check_name
from fedshot.federation.manifest import write_app
from fedshot.federation.processes import Service, port_taken, tail
from fedshot.federation.proxy import nginx_configuration, speaks_ipv6
from fedshot.federation.units import write_units
from fedshot.store import write_atomic

Told = Callable[[str], None]  # what is said while something takes its time

_UNSAFE = set("\"'\\$;{}%\n")  # in the configuration of nginx or of systemd these mean something
_SOON = timedelta(days=30)  # before its end a certificate is made anew
_START_SECONDS = 60.0  # in which the engine must answer after its start
_HUNG_SECONDS = 15.0  # without an answer, after which one that is up is started again


def compose(folder: ServerFolder, names: Sequence[str], changes: Mapping[str, Any]) -> Federation:
    """The federation in a folder with more members and other settings, or a new one. Nothing is written.

    Args:
        names: of members; those who are in it already stay who they are.
        changes: fields of Federation.
    """
    known = folder.read() if folder.settings.exists() else None
    if known is None:
        if folder.path.is_dir() and any(folder.path.iterdir()):
            raise UserError(f"{folder.path} holds something that is not a federation: choose another folder")
        if "host" not in changes:
            raise UserError(
                "say by --host how clients reach this machine: --host fl.example.org, or --host localhost to rehearse"
            )
        if not names:
            raise UserError("name the clients: --client hospital-a --client hospital-b, or --clients 3")
    members = list(known.members if known else ())
    for name in names:
        if known is None or name not in {member.name for member in known.members}:
            members.append(Member(number=len(members), name=name))
    return Federation.model_validate({**(dict(known) if known else {}), **changes, "members": tuple(members)})


def found(folder: ServerFolder, federation: Federation, renewed: Sequence[str] = ()) -> list[Path]:
    """Writes everything that a server needs, or brings it up to date; the bundles that are new or changed.

    What is there is kept: the authority, and the keys of members who are not to be renewed.

    Args:
        federation: members without a public key get a new key pair.
        renewed: names of members whose key was lost or seen by others; their old key is refused from the next `up` on.
    """
    _check(folder, federation)
    if strangers := sorted(set(renewed) - {member.name for member in federation.members}):
        raise unknown("client", strangers[0], [member.name for member in federation.members])
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.path.chmod(0o700)
    if not folder.authority[0].exists():
        make_authority(*folder.authority, federation.host)
    before = folder.read() if folder.settings.exists() else None
    moved = before is None or before.host != federation.host
    if moved or not folder.certificate.exists() or expiry(folder.certificate) < datetime.now(UTC) + _SOON:
        hosts = tuple(dict.fromkeys((federation.host, "localhost", "127.0.0.1")))
        make_server_certificate(folder.authority, folder.certificate, folder.key, hosts)
    bundles, members = [], []
    for member in federation.members:
        member, written = _admit(folder, federation, member, member.name in renewed)
        members.append(member)
        bundles += [written] if written else []
    complete = federation.model_copy(update={"members": tuple(members)})
    write_app(folder.app)
    write_atomic(folder.nginx, nginx_configuration(folder, complete, speaks_ipv6()).encode())
    write_units(folder)
    folder.write(complete)
    return bundles


def _check(folder: ServerFolder, federation: Federation) -> None:
    if odd := sorted(_UNSAFE & set(str(folder.path))):
        raise UserError(f"{folder.path}: choose a folder without {odd[0]!r} in its path")
    try:
        ipaddress.ip_address(federation.host)
    except ValueError:
        if not all(part and part.replace("-", "a").isalnum() and part.isascii() for part in federation.host.split(".")):
            raise UserError(
                f"--host {federation.host!r} is no host: write the name or address by which clients reach this "
                "machine, as fl.example.org, without https:// and without a port"
            ) from None
    if not federation.local and federation.port == federation.engine_port:
        raise UserError(f"--port and --engine-port are both {federation.port}: the proxy and the engine need one each")
    names = [check_name(member.name) for member in federation.members]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"two clients are called {twice[0]!r}: give each a name of its own")


def _admit(folder: ServerFolder, federation: Federation, member: Member, renew: bool) -> tuple[Member, Path | None]:
    """The member with its key, and its bundle where that is new or changed."""
    file = folder.bundle(member.name)
    if not member.public_key or renew:
        pair = make_key_pair(member.name)
        member, private = member.model_copy(update={"public_key": pair.public}), pair.private
    elif file.exists():
        private = read_bundle(file).key
    else:
        return member, None  # it was handed over and removed here, as it should be
    authority = folder.authority[0].read_text()
    bundle = Bundle(name=member.name, number=member.number, server=federation.address, authority=authority, key=private)
    if file.exists() and read_bundle(file) == bundle:
        return member, None
    write_bundle(file, bundle)
    return member, file


def services(folder: ServerFolder) -> tuple[Service, Service]:
    """The engine and the proxy."""
    return Service(folder.processes, "engine"), Service(folder.processes, "proxy")


def bring_up(folder: ServerFolder, proxied: bool, told: Told) -> None:
    """Starts what is not running yet: the engine, then the proxy; and lets the members' keys in.

    Args:
        proxied: whether the proxy is started here; if not, one of the operator's own does its work.
    """
    require_engine()
    federation, (engine, proxy) = folder.read(), services(folder)
    if expiry(folder.certificate) < datetime.now(UTC) + _SOON:
        ends = expiry(folder.certificate).date()
        told(f"the server's certificate ends on {ends}: `fedshot federation init {folder.path}` makes a new one")
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")
    if proxied and not federation.local and nginx is None:
        raise UserError(
            "nginx is not installed, and without a proxy the engine would have to stand in the open: install nginx "
            f"(apt install nginx), or let a proxy of your own do what {folder.nginx} says and add --no-proxy"
        )
    control = Control(folder)
    control.settle(federation)
    _start(engine, server_command(folder, federation), folder, federation.engine_port, told)
    _admit_keys(folder, federation, control, told)
    if proxied and not federation.local and nginx is not None:
        command = [nginx, "-c", str(folder.nginx), "-p", str(folder.processes), "-g", "daemon off;"]
        _start(proxy, command, folder, federation.port, told)
    if not federation.local:
        _check_closed(folder, federation, told)


def _start(service: Service, command: list[str], folder: ServerFolder, port: int, told: Told) -> None:
    """Starts a process and waits until it answers on its port; one that is up and answers is left alone."""
    if (pid := service.pid()) is not None and _answers_within(service, folder, port, _HUNG_SECONDS):
        told(f"the {service.name} is up already (process {pid})")
        return
    service.stop()  # one that hangs, or what one that crashed has left behind
    if port_taken("127.0.0.1", port):
        flag = "--engine-port" if service.name == "engine" else "--port"
        raise UserError(
            f"port {port} is taken by another program: stop that one, or choose another port with "
            f"`fedshot federation init {folder.path} {flag} N`"
        )
    told(f"starting the {service.name} …")
    pid = service.start(command, environment(folder.engine), folder.path)
    if not _answers_within(service, folder, port, _START_SECONDS):
        how = "ended at once" if service.pid() is None else f"did not answer within {_START_SECONDS:.0f} s"
        service.stop()
        raise UserError(f"the {service.name} {how}. The end of {service.log}:\n{tail(service.log)}")
    told(f"the {service.name} is up (process {pid}), on port {port}")


def _answers_within(service: Service, folder: ServerFolder, port: int, seconds: float) -> bool:
    """Waits until a process answers on its port; whether it does, before it ends or the seconds are over."""
    give_up = time.monotonic() + seconds
    while service.pid() is not None and time.monotonic() < give_up:
        with suppress(OSError):
            if answers(f"127.0.0.1:{port}", folder.authority[0]) == 200:
                return True
        time.sleep(0.1)
    return False


def _admit_keys(folder: ServerFolder, federation: Federation, control: Control, told: Told) -> None:
    """Lets the keys of all members in, and no other."""
    known, registered = folder.read_nodes(), control.nodes()
    keys = {member.public_key: member.name for member in federation.members}
    for node in registered.keys() - {known[key] for key in keys.keys() & known.keys()}:
        if registered[node] != "unregistered":
            control.unregister(node)
            told(f"an old key was put out (node {node})")
    nodes = {key: known[key] for key in keys if registered.get(known.get(key, 0), "unregistered") != "unregistered"}
    for key, name in keys.items():
        if key not in nodes:
            with tempfile.NamedTemporaryFile("w", suffix=".pub") as file:
                file.write(key)
                file.flush()
                nodes[key] = control.register(Path(file.name))
            folder.write_nodes(nodes)
            told(f"{name} may join")
    folder.write_nodes(nodes)


def _check_closed(folder: ServerFolder, federation: Federation, told: Told) -> None:
    """Asks for the control path as a stranger would; takes everything down where that is answered."""
    probe = f"127.0.0.1:{federation.port}"
    try:
        status = answers(probe, folder.authority[0], "/v1/control/list-nodes", b"")
    except (OSError, ssl.SSLError):
        told(f"no proxy answers on port {federation.port} yet: clients cannot reach the server before one does")
        return
    if status not in (403, 404):
        take_down(folder)
        raise UserError(
            f"the proxy on port {federation.port} lets the control path through (status {status}): whoever reaches it "
            f"could run the federation. Everything is down again; let the proxy do what {folder.nginx} says"
        )


def take_down(folder: ServerFolder) -> int:
    """Ends everything that `up` started, and all that this started; how many processes that were."""
    engine, proxy = services(folder)
    return proxy.stop() + engine.stop()


def online(folder: ServerFolder) -> dict[int, str]:
    """The status of each member's node, by the member's number; empty where the engine is down."""
    if services(folder)[0].pid() is None:
        return {}
    try:
        nodes = Control(folder).nodes()
    except EngineRefused:
        return {}
    known = folder.read_nodes()
    numbers = {
        known[member.public_key]: member.number for member in folder.read().members if member.public_key in known
    }
    return {numbers[node]: status for node, status in nodes.items() if node in numbers}
