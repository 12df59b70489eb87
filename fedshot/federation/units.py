"""systemd units: the federation comes back after a restart of the machine, and after a crash."""

import sys
from pathlib import Path

from fedshot.federation.layout import ServerFolder
from fedshot.store import write_atomic

_SERVER = """\
# The server of a federation. As the user who owns the folder:
#   mkdir -p ~/.config/systemd/user && cp {file} ~/.config/systemd/user/
#   systemctl --user enable --now {name} && loginctl enable-linger
[Unit]
Description=fedshot federation in {folder}
After=network-online.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart="{program}" federation up "{folder}"
ExecStop="{program}" federation down "{folder}"
NoNewPrivileges=yes
PrivateTmp=yes

[Install]
WantedBy=default.target
"""

_CLIENT = """\
# A client of a federation, in its folder {folder}. As the user who owns the folder:
#   mkdir -p ~/.config/systemd/user && cp {file} ~/.config/systemd/user/
#   systemctl --user enable --now {name} && loginctl enable-linger
[Unit]
Description=fedshot client in {folder}
After=network-online.target

[Service]
ExecStart="{program}" federation join "{folder}"
Restart=on-failure
SuccessExitStatus=130
RestartSec=30
NoNewPrivileges=yes
PrivateTmp=yes

[Install]
WantedBy=default.target
"""


def fedshot_program() -> str:
    """The program that a person types, of the environment that this runs in."""
    return str(Path(sys.executable).parent / "fedshot")


def write_units(folder: ServerFolder) -> Path:
    """The unit of the server."""
    return _write(_SERVER, folder.units / "fedshot-server.service", folder.path)


def write_client_unit(site: Path) -> Path:
    """The unit of a client."""
    return _write(_CLIENT, site / "fedshot-client.service", site)


def _write(template: str, file: Path, folder: Path) -> Path:
    text = template.format(file=file, name=file.name, folder=folder, program=fedshot_program())
    write_atomic(file, text.encode())
    return file
