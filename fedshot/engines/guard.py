"""Starts a process of the engine that runs an app, after a look at the app: nothing but fedshot's own is run.

The engine looks for its programs by name; `fedshot/federation/engine.py` puts this module in their place.
"""

import importlib
import sys
from collections.abc import Sequence

from fedshot.errors import UserError
from fedshot.federation.manifest import check_app

# program: where it starts, and where it unpacks what it was sent
_PROGRAMS = {
    "flwr-clientapp": ("flwr.supernode.cli.flwr_clientapp:flwr_clientapp", "flwr.supernode.runtime.run_clientapp"),
    "flwr-serverapp": ("flwr.superlink.cli.flwr_serverapp:flwr_serverapp", "flwr.superlink.runtime.run_serverapp"),
}
REFUSED = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-simulation")  # what the engine could run as well
GUARDED = tuple(_PROGRAMS)


def main(arguments: Sequence[str]) -> None:
    """Runs a program of the engine by name, with its arguments."""
    program, *rest = arguments
    if program not in _PROGRAMS:
        raise SystemExit(f"fedshot: {program} is not part of a federation: refused")
    start, unpacker = _PROGRAMS[program]
    runtime = importlib.import_module(unpacker)
    unpack = runtime.install_from_fab

    def checked(content: bytes, skip_prompt: bool = True) -> object:
        if not isinstance(content, bytes):
            raise UserError("the server sent something that is not a fedshot run")
        check_app(content)
        return unpack(content, skip_prompt=skip_prompt)

    runtime.install_from_fab = checked  # type: ignore[attr-defined]
    sys.argv = [program, *rest]
    module, _, function = start.partition(":")
    getattr(importlib.import_module(module), function)()


if __name__ == "__main__":
    main(sys.argv[1:])
