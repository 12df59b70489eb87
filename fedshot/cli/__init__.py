"""The command line. Nothing heavy is imported before a command needs it: `fedshot --help` answers at once."""

import sys

import typer

from fedshot.cli.data import data_app
from fedshot.cli.fuse import fuse
from fedshot.cli.lists import datasets, fusions, methods
from fedshot.cli.partition import partition
from fedshot.cli.train import compare, run
from fedshot.errors import UserError

app = typer.Typer(
    name="fedshot",
    help="""A laboratory for one-shot federated learning: every client trains alone and uploads once, the server fuses.

    **First steps**

    - `fedshot run fafi` trains five clients on the embedded digits and scores the fusion
    - `fedshot compare fedavg fafi etf aurora --seeds 1,2,3` makes a table and a report
    - `fedshot fuse runs/RUN` tries every fusion rule on the same uploads, without training
    - `fedshot methods` lists the methods, `fedshot methods aurora` what can be set in one
    """,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for command in (run, compare, fuse, partition, methods, datasets, fusions):
    app.command()(command)
app.add_typer(data_app, name="data")


@app.callback(invoke_without_command=True)
def start(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        from fedshot import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Runs a command; a mistake of the user's is one line on standard error and exit status 2."""
    try:
        app()
    except UserError as error:
        sys.exit(_say(str(error), 2))
    except KeyboardInterrupt:
        sys.exit(_say("interrupted; finished clients are kept: run the same command again with --resume", 130))
    except RuntimeError as error:
        if not type(error).__module__.startswith("fedshot"):
            raise
        sys.exit(_say(f"{error}: run the same command again with --resume", 1))


def _say(message: str, status: int) -> int:
    print(f"fedshot: {message}", file=sys.stderr)
    return status
