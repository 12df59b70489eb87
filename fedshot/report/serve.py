"""The page of a folder, served while runs are under way. Read-only: two addresses, made from the folder's runs."""

import ipaddress
import json
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fedshot.errors import UserError
from fedshot.report.gather import gather
from fedshot.report.page import contents, render
from fedshot.report.underway import under_way, version


class LivePage:
    """The page of a folder, made again when a run has ended."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._lock = threading.Lock()
        self._made = ("", b"")  # version and page

    def page(self) -> bytes:
        """HTML of all runs that are finished now."""
        with self._lock:
            now = version(self.root)
            if self._made[0] != now:
                found = gather([self.root], confined=True)
                problems = found.problems if found.tasks else ()
                self._made = (now, render(contents(found.tasks, problems, None, live=now)).encode())
            return self._made[1]

    def changes(self) -> bytes:
        """JSON of what has changed: the version of the finished runs, and the unfinished ones."""
        return json.dumps({"version": version(self.root), "runs": under_way(self.root)}).encode()


class Server(ThreadingHTTPServer):
    """Answers `/` with the page and `/live.json` with what changed; nothing else, and no file by its name."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, root: Path, host: str, port: int) -> None:
        self.live = LivePage(root)
        self.loopback = is_loopback(host)
        try:
            super().__init__((host, port), _Handler)
        except OverflowError:
            raise UserError(f"--port {port} is no port: give one from 1 to 65535, or 0 for any free one") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise UserError(f"cannot serve at {host}:{port} ({reason}): choose another --port, or 0 for any") from None

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that goes away in the middle of an answer is no news."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://{self.server_address[0]!s}:{self.server_address[1]}/"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        # a page of another site whose name leads to this machine must not read the results
        if self.server.loopback and not is_loopback(self.headers.get("Host", "").rpartition(":")[0].strip("[]")):
            return self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"unknown host\n")
        path = self.path.partition("?")[0]
        if path == "/":
            return self._answer(HTTPStatus.OK, "text/html; charset=utf-8", self.server.live.page())
        if path == "/live.json":
            return self._answer(HTTPStatus.OK, "application/json", self.server.live.changes())
        return self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there is only / and /live.json\n")

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal belongs to the person who watches."""
