"""A client's operator: settles a site from a bundle, keeps it connected, leaves."""

import os
import ssl
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedshot.data import load
from fedshot.errors import UserError
from fedshot.federation.bundle import read_bundle
from fedshot.federation.engine import answers, client_command, environment
from fedshot.federation.labour import end_all
from fedshot.federation.layout import write_secret
from fedshot.federation.processes import Service, free_port
from fedshot.federation.share import read_share
from fedshot.federation.site import Site, SiteFile
from fedshot.federation.units import fedshot_program, write_client_unit
from fedshot.spec import first_problem
from fedshot.store import write_atomic

_NO_BUNDLE = "this site was not made from a join bundle: join with a NAME.join first"


def settle(given: Path, folder: Path | None, changes: dict[str, Any]) -> Site:
    """A site from a join bundle, or one that is there already, with changed settings.

    Args:
        given: a NAME.join, or the folder of a site.
        folder: of the site; site-NAME in the present folder if None.
        changes: fields of SiteFile.
    """
    bundle = None if given.is_dir() else read_bundle(given)
    site = Site((given if bundle is None else folder or Path(f"site-{bundle.name}")).absolute())
    known: dict[str, Any] = {}
    if bundle is None or site.file.exists():
        known = site.read().model_dump()
    if bundle is not None:
        if known and known["name"] != bundle.name:
            raise UserError(f"{site.path} is the site of {known['name']}, and the bundle is that of {bundle.name}")
        known |= {"name": bundle.name, "number": bundle.number, "server": bundle.server}
        known |= {"key": site.path / "client.key", "certificate": site.path / "ca.crt"}
    if "data" not in known | changes:
        raise UserError("where are this client's private data? --data folder:PATH, a share .npz, or a data set by name")
    try:
        settings = SiteFile.model_validate(known | changes)
    except ValidationError as error:
        raise UserError(first_problem(error)) from None
    _check_data(settings)
    site.path.mkdir(parents=True, exist_ok=True)
    site.path.chmod(0o700)
    if bundle is not None and settings.key and settings.certificate:
        write_secret(settings.key, bundle.key.encode())
        write_atomic(settings.certificate, bundle.authority.encode())
    site.write(settings)
    write_client_unit(site.path)
    return site


def _check_data(site: SiteFile) -> None:
    """Tells now what would be told only when the first job arrives."""
    if site.data.endswith(".npz"):
        read_share(Path(site.data))
    elif site.data.startswith("folder:"):
        folder = Path(site.data.removeprefix("folder:"))
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder: give one with a subfolder of pictures for each class")
    else:
        load(site.data, site.data_root, 0)


def check_server(site: SiteFile) -> str | None:
    """What is wrong with the way to the server at this moment, if anything; UserError for what waiting cannot mend."""
    server, certificate = site.server, site.certificate
    if server is None or certificate is None or site.key is None:
        raise UserError(_NO_BUNDLE)
    try:
        status = answers(server, certificate)
    except ssl.SSLCertVerificationError as error:
        raise UserError(
            f"what answers at {server} is not the server of this federation ({error.verify_message}): compare the "
            "address with its operator, or ask for a new bundle"
        ) from None
    except OSError as error:
        return f"{server} cannot be reached ({error.strerror or error})"
    return None if status == 200 else f"{server} answers with status {status}"


def services(site: Site) -> tuple[Service, Service]:
    """`join` itself, and the engine that it keeps running."""
    folder = site.path / "processes"
    return Service(folder, "client"), Service(folder, "engine")


def connect(site: Site) -> None:
    """Starts the engine at a client; it goes on when this returns."""
    settings, (_, engine) = site.read(), services(site)
    engine.stop()  # one whose `join` was killed
    if settings.server is None or settings.certificate is None or settings.key is None:
        raise UserError(_NO_BUNDLE)
    command = client_command(site.path, settings.server, settings.certificate, settings.key, free_port())
    engine.start(command, environment(site.path / "engine"), site.path)


def start_detached(site: Site) -> None:
    """Starts `join` for a site in the background."""
    client, _ = services(site)
    client.start([fedshot_program(), "federation", "join", str(site.path)], os.environ, site.path)


def leave(site: Site) -> int:
    """Ends a client and its training; how many processes that were. Checkpoints and uploads stay."""
    ended = sum(service.stop() for service in services(site))
    end_all(site)
    return ended
