"""Where the files of a federation lie: at the server, and at a client's site."""

import json
import os
import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedshot.errors import UserError
from fedshot.spec import first_problem
from fedshot.store import write_atomic

PUBLIC_PORT = 9443  # where clients reach the server, through the proxy
ENGINE_PORT = 9444  # where the engine listens, on the loopback interface alone

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class Member(BaseModel):
    """A client of the federation. Its number is its place in every run, its public key is its identity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int = Field(ge=0)
    name: str
    public_key: str = ""  # OpenSSH, one line; empty until `init` has made it


class Federation(BaseModel):
    """What `init` decided: federation.json in the server's folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str  # name or address under which clients reach the server
    port: int = Field(PUBLIC_PORT, ge=1, le=65535)
    engine_port: int = Field(ENGINE_PORT, ge=1, le=65535)
    members: tuple[Member, ...] = ()

    @property
    def local(self) -> bool:
        """Whether all clients are on the server's own machine: then they need no proxy."""
        return self.host in ("localhost", "127.0.0.1")

    @property
    def address(self) -> str:
        """Where clients reach the server."""
        if self.local:
            return f"127.0.0.1:{self.engine_port}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ServerFolder:
    """The server's folder.

    federation.json, ca.crt, ca.key, server.crt, server.key, nginx.conf, bundles/NAME.join, systemd/*.service,
    app/pyproject.toml (what the engine is given to run), engine/ (the engine's own settings and database),
    processes/NAME.lock and NAME.log. engine/nodes.json has the engine's number of each member.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.settings = self.path / "federation.json"
        self.authority = self.path / "ca.crt", self.path / "ca.key"
        self.certificate = self.path / "server.crt"
        self.key = self.path / "server.key"
        self.nginx = self.path / "nginx.conf"
        self.units = self.path / "systemd"
        self.app = self.path / "app"
        self.engine = self.path / "engine"
        self.processes = self.path / "processes"
        self.nodes = self.engine / "nodes.json"

    def bundle(self, name: str) -> Path:
        """What a client needs to join."""
        return self.path / "bundles" / f"{name}.join"

    def read(self) -> Federation:
        """The settings, or what is wrong with them."""
        try:
            return Federation.model_validate_json(self.settings.read_bytes())
        except FileNotFoundError:
            raise UserError(
                f"{self.path} is not the folder of a federation: make one with `fedshot federation init {self.path}`, "
                "or name the right one"
            ) from None
        except ValidationError as error:
            raise UserError(f"{self.settings} is damaged: {first_problem(error)}") from None

    def write(self, federation: Federation) -> None:
        write_atomic(self.settings, federation.model_dump_json(indent=1).encode())

    def read_nodes(self) -> dict[str, int]:
        """The engine's number of each member that it knows, by the member's public key."""
        try:
            return json.loads(self.nodes.read_bytes())
        except FileNotFoundError:
            return {}

    def write_nodes(self, nodes: dict[str, int]) -> None:
        write_atomic(self.nodes, json.dumps(nodes, indent=1).encode())


def check_name(name: str) -> str:
    """The name of a client, as it stands in files and certificates.

    >>> check_name("ward-7")
    'ward-7'
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r} is no name for a client: write up to 40 small letters, digits and hyphens, as hospital-a"
        )
    return name


def write_secret(path: Path, content: bytes) -> None:
    """Like `write_atomic`, for the eyes of the owner alone from the first byte on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    part.replace(path)
