"""Long-lived processes: found again, started once, ended with all that they started."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedshot.errors import UserError
from fedshot.federation.processes import Service, free_port, port_taken, tail

# starts a child in a session of its own, as the engine does, and neither of them ends when it is asked to
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('child', flush=True); time.sleep(60)"
print(subprocess.Popen([sys.executable, "-c", child], start_new_session=True).pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    found = Service(tmp_path / "processes", "sleeper")
    yield found
    found.stop(0.1)


def start(service: Service, code: str) -> int:
    return service.start([sys.executable, "-c", code], os.environ, service.folder.parent)


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process lives; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_is_found_by_its_lock_and_ends(service: Service) -> None:
    assert service.pid() is None
    pid = start(service, "import time; print('here', flush=True); time.sleep(60)")
    assert service.pid() == pid
    until(lambda: "here" in tail(service.log))
    assert service.stop() == 1
    assert service.pid() is None
    assert not alive(pid)
    assert service.stop() == 0


def test_a_second_start_is_refused(service: Service) -> None:
    pid = start(service, "import time; time.sleep(60)")
    with pytest.raises(UserError, match=f"running already, as process {pid}"):
        start(service, "pass")
    assert service.pid() == pid


def test_a_process_that_crashed_is_not_running_and_can_start_again(service: Service) -> None:
    os.kill(start(service, "import time; time.sleep(60)"), signal.SIGKILL)
    until(lambda: service.pid() is None)
    assert start(service, "import time; time.sleep(60)") == service.pid()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_children_in_sessions_of_their_own_end_too_and_stubborn_ones_are_killed(service: Service) -> None:
    pid = start(service, STUBBORN)
    until(lambda: "child" in tail(service.log))
    child = next(int(word) for word in tail(service.log).split() if word.isdigit())
    assert alive(child)
    assert service.stop(0.3) == 2
    assert not alive(pid)
    assert not alive(child)


def test_a_process_is_asked_to_end_once(service: Service) -> None:
    code = """
import signal, sys, time
def end(*_):
    print("asked", flush=True)
    time.sleep(0.3)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""
    start(service, code)
    until(lambda: "ready" in tail(service.log))
    assert service.stop() == 1
    assert tail(service.log).split() == ["ready", "asked"]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_orphans_of_a_crashed_process_are_ended(service: Service) -> None:
    pid = start(service, STUBBORN)
    until(lambda: "child" in tail(service.log))
    child = next(int(word) for word in tail(service.log).split() if word.isdigit())
    os.kill(pid, signal.SIGKILL)
    until(lambda: service.pid() is None)
    assert alive(child)
    assert service.stop(0.3) == 1
    assert not alive(child)


def test_a_process_can_be_the_service_itself(service: Service) -> None:
    with service.held():
        assert service.pid() == os.getpid()
        with pytest.raises(UserError, match="running already"), service.held():
            pass
    assert service.pid() is None


def test_a_large_log_is_set_aside(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedshot.federation.processes._ROTATE_BYTES", 10)
    service.folder.mkdir()
    service.log.write_text("old " * 10)
    start(service, "print('new')")
    until(lambda: service.pid() is None)
    assert tail(service.log) == "new"
    assert service.log.with_suffix(".log.1").read_text() == "old " * 10


def test_colours_are_left_out_of_the_end_of_a_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("one\n\x1b[91mERROR\x1b[0m two\n")
    assert tail(tmp_path / "log", 1) == "ERROR two"
    assert tail(tmp_path / "none") == ""


def test_a_port_is_free_or_taken() -> None:
    import socket

    port = free_port()
    assert not port_taken("127.0.0.1", port)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert port_taken("127.0.0.1", port)
