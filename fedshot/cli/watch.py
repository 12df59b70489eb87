"""`fedshot watch`."""

from pathlib import Path
from typing import Annotated

import typer

from fedshot.errors import UserError


def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="folder of runs, a comparison or a study")],
    port: Annotated[int, typer.Option("--port", "-p", help="0 for any free one")] = 8765,
    host: Annotated[
        str, typer.Option("--host", help="address to serve at; the default is reached from this machine alone")
    ] = "127.0.0.1",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="do not open a browser")] = False,
) -> None:
    """Serve the report of a folder while its runs are under way, until Ctrl-C. Nothing is written.

    **Examples**

    - `fedshot watch runs/compare`

    - `fedshot watch runs --port 0 --no-browser`
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder: give the folder of a run, of a comparison or of a study")
    from fedshot.report.serve import Server, is_loopback

    if not is_loopback(host):
        typer.echo(f"warning: everyone who reaches {host} can read these results", err=True)
    with Server(folder, host, port) as server:
        typer.echo(f"watching {folder} at {server.address} (Ctrl-C stops)")
        if not no_browser:
            import webbrowser

            webbrowser.open(server.address)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            typer.echo("stopped")
