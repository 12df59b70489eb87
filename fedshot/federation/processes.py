"""Long-lived processes of a federation: started once, found again, ended with all that they started.

A process holds a lock on processes/NAME.lock as long as it lives, and the file says its id. So "is it running" has an
answer that survives a crash, and no other process that got the same id later is ever taken for it.
"""

import fcntl
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from fedshot.errors import UserError

_MARK = "FEDSHOT_SERVICE"  # in the environment of a process and of all that it starts
_COLOURS = re.compile("\x1b\\[[0-9;]*m")
_ROTATE_BYTES = 2**24  # a log larger than that is set aside when its process starts again


@dataclass(frozen=True)
class Service:
    """A process by name. Its lock and its log lie in the folder."""

    folder: Path
    name: str

    @property
    def lock(self) -> Path:
        return self.folder / f"{self.name}.lock"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def pid(self) -> int | None:
        """The id of the process, if it is running."""
        try:
            with self.lock.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None  # nobody holds it
        except FileNotFoundError:
            return None
        except BlockingIOError:
            return int(self.lock.read_text() or 0) or None

    def start(self, command: Sequence[str], environment: Mapping[str, str], directory: Path) -> int:
        """Starts it in a session of its own, so that it outlives the terminal; its id. Its output goes to the log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > _ROTATE_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        marked = {**environment, _MARK: str(self.lock.absolute())}
        with self.lock.open("a+b") as lock, self.log.open("ab") as log:
            self._take(lock)
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=marked,
                cwd=directory,
                start_new_session=True,
                pass_fds=(lock.fileno(),),  # the lock lives as long as the process
            )
            lock.truncate(0)
            lock.write(str(process.pid).encode())
        process.returncode = 0  # nobody waits for it: without this Python warns that it is still running
        return process.pid

    @contextmanager
    def held(self) -> Iterator[None]:
        """This process is the service, as long as the block lasts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if os.environ.get(_MARK) == str(self.lock.absolute()):  # `start` has seen to it
            yield
            return
        with self.lock.open("a+b") as lock:
            self._take(lock)
            lock.truncate(0)
            lock.write(str(os.getpid()).encode())
            lock.flush()
            yield

    def _take(self, lock: IO[bytes]) -> None:
        for attempt in range(5):  # whoever only asks whether it runs holds the lock for a moment
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.02 * (attempt + 1))
        raise UserError(f"it is running already, as process {self.pid()}: {self.lock}")

    def stop(self, seconds: float = 15.0) -> int:
        """Ends it, then whatever it started that has not ended with it, kindly and then not; how many there were.

        Each is asked once: the engine takes a second request as an order to drop everything, its connection too.
        """
        family, root = self._family(), self.pid() or 0
        for asked in ({root} & family.keys(), family.keys() - {root}):
            for pid in asked & _alive(family):
                _send(pid, signal.SIGTERM)
            _gone_within({pid: family[pid] for pid in asked}, seconds)
        for pid in _alive(family):
            _send(pid, signal.SIGKILL)
        _gone_within(family, seconds)
        return len(family)

    def _family(self) -> dict[int, str]:
        """The process, its group, its descendants, and what any of them left behind: id and moment of birth."""
        root, table = self.pid(), _table()
        mark = f"{_MARK}={self.lock.absolute()}".encode()
        found = {pid for pid, row in table.items() if root in (pid, row.group) or mark in _environment(pid)}
        while more := {pid for pid, row in table.items() if row.parent in found} - found:
            found |= more
        return {pid: table[pid].began for pid in found}


class _Row(NamedTuple):
    """A living process. Its moment of birth tells it from a later one of the same id."""

    parent: int
    group: int
    began: str


def _table() -> dict[int, _Row]:
    """Every living process."""
    if not Path("/proc/self/stat").exists():
        columns = "pid=,ppid=,pgid=,stat=,lstart="
        listed = subprocess.run(["ps", "-A", "-o", columns], capture_output=True, text=True, check=True)
        rows = [line.split(None, 4) for line in listed.stdout.splitlines()]
        return {int(pid): _Row(int(up), int(group), began) for pid, up, group, state, began in rows if state[0] != "Z"}
    table = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, parent, group, *rest = file.read_text().rpartition(")")[2].split()  # a name may hold anything
            if state != "Z":
                table[int(file.parent.name)] = _Row(int(parent), int(group), rest[16])
    return table


def _environment(pid: int) -> list[bytes]:
    """Of another process; nothing where the system does not tell it."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _alive(family: Mapping[int, str]) -> set[int]:
    table = _table()
    return {pid for pid, began in family.items() if pid in table and table[pid].began == began}


def _gone_within(family: Mapping[int, str], seconds: float) -> bool:
    """Waits until all of a family have ended; whether they have."""
    give_up = time.monotonic() + seconds
    while _alive(family):
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True


def _send(pid: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, what)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def port_taken(host: str, port: int) -> bool:
    """Whether something listens on a port already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that has just been left is free
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of a log."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 2**14))
        text = _COLOURS.sub("", file.read().decode(errors="replace"))
    return "\n".join(text.splitlines()[-lines:])
