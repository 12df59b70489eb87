"""The engine's programs: how they are started, and how the running engine is spoken to. Nothing of it is imported."""

import json
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedshot.engines.guard import GUARDED, REFUSED
from fedshot.errors import UserError
from fedshot.federation.layout import Federation, ServerFolder
from fedshot.store import write_atomic

CONNECTION = "federation"  # the engine's name for our server, in its own settings
FIRST, BEFORE = (1, 41), (1, 43)  # of the engine: what this is made for; it was run with 1.41

_SETTINGS = """\
[superlink]
default = "{name}"

[superlink.{name}]
address = "127.0.0.1:{port}"
root-certificates = "{authority}"
"""


class EngineRefused(RuntimeError):
    """The running engine did not do what it was asked; its words."""


def require_engine() -> None:
    """Says what to install where the engine is missing, or is one that was never tried."""
    wanted = f"pip install 'fedshot[flower]' installs flwr {'.'.join(map(str, FIRST))} or the one after it"
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise UserError(f"a federation needs Flower, which is not installed: {wanted}") from None
    if not FIRST <= tuple(int(part) for part in found.split(".")[:2]) < BEFORE:
        raise UserError(f"flwr {found} is installed, and fedshot was never tried with it: {wanted}")


def environment(home: Path) -> dict[str, str]:
    """Of the engine's processes: no telemetry, no search for updates, its files in `home`, its apps guarded."""
    programs = home / "bin"
    for program in (*GUARDED, *REFUSED):
        script = programs / program
        write_atomic(script, f'#!/bin/sh\nexec "{sys.executable}" -m fedshot.engines.guard {program} "$@"\n'.encode())
        script.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    return {
        **kept,
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), kept.get("PATH", os.defpath)]),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",  # seconds; it asks its own machine
        "PYTHONUNBUFFERED": "1",
    }


def server_command(folder: ServerFolder, federation: Federation) -> list[str]:
    """The engine at the server: on the loopback interface alone, with TLS, and open to registered keys only."""
    return [
        _program("flower-superlink"),
        *("--host", "127.0.0.1", "--port", str(federation.engine_port)),
        *("--ssl-ca-certfile", str(folder.authority[0])),
        *("--ssl-certfile", str(folder.certificate), "--ssl-keyfile", str(folder.key)),
        *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
        *("--database", str(folder.engine / "state.db")),
    ]


def client_command(site: Path, server: str, certificate: Path, key: Path, port: int) -> list[str]:
    """The engine at a client.

    Args:
        port: of the loopback interface, for its own processes.
    """
    return [
        _program("flower-supernode"),
        *("--superlink", server, "--root-certificates", str(certificate)),
        *("--auth-supernode-private-key", str(key)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--node-config", f"site={json.dumps(str(site.absolute()), ensure_ascii=False)}"),
    ]


@dataclass(frozen=True)
class Control:
    """The control path of a running engine, from the server's own machine."""

    folder: ServerFolder

    def settle(self, federation: Federation) -> None:
        """Writes where the engine is, as the engine's own programs want to read it."""
        text = _SETTINGS.format(name=CONNECTION, port=federation.engine_port, authority=self.folder.authority[0])
        write_atomic(self.folder.engine / "config.toml", text.encode())

    def nodes(self) -> dict[int, str]:
        """Every registered node and its status: registered (never seen), online, offline."""
        return {int(node["node-id"]): node["status"] for node in self._ask("supernode", "list")["nodes"]}

    def register(self, public_key: Path) -> int:
        """Lets a key in; the id of its node."""
        return int(self._ask("supernode", "register", str(public_key))["node-id"])

    def unregister(self, node: int) -> None:
        self._ask("supernode", "unregister", str(node))

    def start(self, run: Path) -> int:
        """Starts the server's part of a run; the engine's number of it."""
        given = f"run={json.dumps(str(run.absolute()), ensure_ascii=False)}"
        return int(self._ask("run", str(self.folder.app), given=("--run-config", given))["run-id"])

    def state(self, run: int) -> tuple[str, str]:
        """How a run stands: pending, starting, running, finished:completed, finished:failed, finished:stopped; why."""
        (found,) = self._ask("list", given=("--run-id", str(run)))["runs"]
        return found["status"], found["status-details"]

    def traffic(self, run: int) -> dict[str, int]:
        """Bytes of a run as the engine counts them: inbound-bytes, outbound-bytes, total-bytes."""
        (found,) = self._ask("list", given=("--run-id", str(run)))["runs"]
        return found["network-traffic"]

    def stop(self, run: int) -> None:
        self._ask("stop", str(run))

    def _ask(self, *words: str, given: tuple[str, ...] = ()) -> dict[str, Any]:
        command = [_program("flwr"), *words, CONNECTION, "--format", "json", *given]
        done = subprocess.run(command, capture_output=True, text=True, env=environment(self.folder.engine), timeout=120)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            raise EngineRefused((done.stderr or done.stdout).strip()[-2000:]) from None
        if not answer.get("success"):
            raise EngineRefused(str(answer.get("error-message", answer)).strip())
        return answer


def answers(address: str, authority: Path, path: str = "/health", data: bytes | None = None) -> int:
    """The HTTP status that a server answers with; OSError where it cannot be reached or is not the authority's."""
    context = ssl.create_default_context(cafile=str(authority))
    request = urllib.request.Request(f"https://{address}{path}", data=data)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with direct.open(request, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError as error:
        raise error.reason if isinstance(error.reason, OSError) else OSError(str(error.reason)) from None


def _program(name: str) -> str:
    """A program of the engine, from the environment that fedshot itself runs in."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise UserError(
            f"{name} is missing from this Python environment: pip install --force-reinstall 'fedshot[flower]'"
        )
    return found
