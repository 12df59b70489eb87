"""What a client's operator sees after `fedshot federation join`."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console

from fedshot.errors import UserError
from fedshot.federation.joining import check_server, connect, leave, services, start_detached
from fedshot.federation.lookout import Lookout
from fedshot.federation.processes import tail
from fedshot.federation.site import Site

_LOOK_SECONDS = 0.5
_TELL_SECONDS = 60.0  # between two lines about what goes on, where there is no terminal
_AGAIN_SECONDS = 5.0  # before an engine that ended is started again
_REFUSED_SECONDS = 90.0  # the server holds a crashed client's connection for a minute, and lets no other in meanwhile
_CRASHES = 5  # of the engine in a row, before it is given up
_JOIN_SECONDS = 30.0  # in which a client in the background should be connected


def watch(site: Site) -> None:
    """Keeps a client in the federation and tells what it does, until Ctrl-C."""
    console, settings = Console(stderr=True), site.read()
    with services(site)[0].held(), _ended_by_sigterm():
        if why := check_server(settings):
            console.print(f"{why}; trying again until it answers", markup=False, soft_wrap=True)
        console.print(f"{settings.name} is client {settings.number} of {settings.server}; Ctrl-C leaves", markup=False)
        try:
            _keep_connected(site, console)
        except KeyboardInterrupt:
            again = f"`fedshot federation join {site.path}` goes on"
            print(f"fedshot: {settings.name} has left; what it trained is kept: {again}", file=sys.stderr)
            raise
        finally:
            services(site)[1].stop()


def _keep_connected(site: Site, console: Console) -> None:
    """Starts the engine again whenever it ends, unless that is of no use."""
    refused_since, crashes = None, 0
    while True:
        lookout, began = Lookout(site), time.monotonic()
        connect(site)
        _tell(lookout, console)
        if lookout.refused:
            if refused_since is None:
                refused_since = time.monotonic()
                _say(console, "the server does not take this key yet; after a crash that lasts a minute: trying again")
            if time.monotonic() - refused_since > _REFUSED_SECONDS:
                raise UserError(
                    "the server does not take this client's key: the bundle was renewed, the server is a new one, or "
                    "the same client has joined from elsewhere; ask the server's operator"
                )
        else:
            refused_since, crashes = None, crashes + 1 if time.monotonic() - began < 60 else 0
            if crashes == _CRASHES:
                log = services(site)[1].log
                raise UserError(f"the engine ended {_CRASHES} times. The end of {log}:\n{tail(log)}")
            _say(console, f"the engine ended; starting it again in {_AGAIN_SECONDS:.0f} s")
        time.sleep(_AGAIN_SECONDS)


def _tell(lookout: Lookout, console: Console) -> None:
    """Tells what a client does as long as its engine runs."""
    told, at = "", time.monotonic()
    with console.status("waiting for the server") as status:
        while lookout.running:
            for line in lookout.look():
                _say(console, line)
            now = lookout.now()
            status.update(now)
            if not console.is_terminal and now != told and time.monotonic() - at > _TELL_SECONDS:
                _say(console, now)
                told, at = now, time.monotonic()
            time.sleep(_LOOK_SECONDS)
    for line in lookout.look():
        _say(console, line)


def _say(console: Console, line: str) -> None:
    console.print(f"{time.strftime('%H:%M:%S')} {line}", markup=False, highlight=False, soft_wrap=True)


def wait_detached(site: Site) -> None:
    """Sees a client into the background."""
    settings, (client, _) = site.read(), services(site)
    why, lookout = check_server(settings), Lookout(site)
    start_detached(site)
    give_up = time.monotonic() + (_JOIN_SECONDS if why is None else 5.0)
    while time.monotonic() < give_up and client.pid() is not None and not lookout.connected:
        lookout.look()
        time.sleep(0.1)
    if client.pid() is None:
        leave(site)
        raise UserError(f"{settings.name} is not in the federation. The end of {client.log}:\n{tail(client.log)}")
    stands = "joined" if lookout.connected else f"waits for the server ({why or f'see {client.log}'})"
    print(f"{settings.name}, client {settings.number}: {stands}; `fedshot federation down {site.path}` ends it")


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """The end that systemd and `kill` ask for is the same as Ctrl-C: nothing is left behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    kinds = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the first one is ignored in a shell's background
    before = {number: signal.signal(number, interrupt) for number in kinds}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
