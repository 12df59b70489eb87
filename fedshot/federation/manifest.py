"""What the engine is given to run: a folder with one file that names code which is installed already.

The engine sends such a folder from the server to the clients, with whatever is in it, and runs it there. So a client
accepts one content only: the one that its own fedshot writes. No code travels.
"""

import io
import tomllib
import zipfile
from pathlib import Path

from fedshot import __version__
from fedshot.errors import UserError
from fedshot.store import write_atomic

NAME = "fedshot-federation"
_LISTING = ".info/CONTENT"  # hashes, added by the engine
_MOST_BYTES = 2**16

MANIFEST = f"""\
[project]
name = "{NAME}"
version = "{__version__}"
description = "One shot of fedshot"
license = "MIT"
dependencies = []

[tool.flwr.app]
publisher = "fedshot"

[tool.flwr.app.components]
serverapp = "fedshot.engines.flower:server_app"
clientapp = "fedshot.engines.flower:client_app"

[tool.flwr.app.config]
run = ""
"""


def write_app(folder: Path) -> None:
    """The folder that the engine is told to run."""
    write_atomic(folder / "pyproject.toml", MANIFEST.encode())


def check_app(content: bytes) -> None:
    """Refuses what the engine was sent to run, unless it is what this version of fedshot would send.

    Args:
        content: a zip file.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            files = {entry.filename: entry.file_size for entry in archive.infolist()}
            if strange := sorted(files.keys() - {"pyproject.toml", _LISTING}):
                raise UserError(f"the server sent code ({strange[0]}): this client runs none but its own")
            if sum(files.values()) > _MOST_BYTES or len(archive.infolist()) != 2:
                raise UserError("the server sent more than the two small files of a fedshot run: refused")
            found = tomllib.loads(archive.read("pyproject.toml").decode())
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"the server sent something that is not a fedshot run: {error}") from None
    if found != tomllib.loads(MANIFEST):
        theirs = found.get("project", {}).get("version")
        if theirs != __version__ and isinstance(theirs, str):
            raise UserError(
                f"the server runs fedshot {theirs[:20]!r}, this client {__version__}: install the same version"
            )
        raise UserError("the server asked for other code than fedshot's: refused")
