"""The command line. Nothing heavy is imported before a command needs it: `fedshot --help` answers at once."""

import sys
from collections.abc import Sequence

import typer

from fedshot.cli.audit import audit
from fedshot.cli.bench import bench
from fedshot.cli.data import data_app
from fedshot.cli.explain import explain
from fedshot.cli.federation import federation_app
from fedshot.cli.fuse import fuse
from fedshot.cli.lists import datasets, fusions, methods
from fedshot.cli.partition import partition
from fedshot.cli.report import report
from fedshot.cli.reproduce import reproduce
from fedshot.cli.results import results
from fedshot.cli.screen import screen
from fedshot.cli.study import study
from fedshot.cli.train import compare, run
from fedshot.cli.watch import watch
from fedshot.errors import UserError

app = typer.Typer(
    name="fedshot",
    help="""A laboratory for one-shot federated learning: every client trains alone and uploads once, the server fuses.

    **First steps**

    - `fedshot run fafi` trains five clients on the embedded digits and scores the fusion
    - `fedshot compare fedavg fafi etf aurora --seeds 1,2,3` makes a table and a report
    - `fedshot fuse runs/RUN` tries every fusion rule that trains nothing on the same uploads
    - `fedshot explain runs/RUN` says what went wrong, and why
    - `fedshot methods` lists the methods, `fedshot methods aurora` what can be set in one
    """,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for command in (
    run,
    compare,
    fuse,
    explain,
    audit,
    screen,
    partition,
    methods,
    datasets,
    fusions,
    bench,
    study,
    results,
    reproduce,
    report,
    watch,
):
    app.command()(command)
app.add_typer(data_app, name="data")
app.add_typer(federation_app, name="federation")


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version and stop.")
) -> None:
    if version:
        from fedshot import __version__

        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command; a mistake of the user's is one line on standard error and exit status 2."""
    try:
        status = app(args=arguments, prog_name="fedshot", standalone_mode=False)
    except UserError as error:
        status = _say(str(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    except OSError as error:
        status = _say(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except Exception as error:
        status = _explained(error)
    sys.exit(status or 0)


def _explained(error: Exception) -> int:
    """One line for a mistyped command or a lost worker; anything else is a defect and keeps its traceback."""
    if isinstance(error, RuntimeError) and type(error).__module__.startswith("fedshot"):
        alone = type(error).__name__ == "WorkerLost"  # a federation asks its clients again only if told to
        goes_on = "the same command, without --fresh, goes on" if alone else "run the same command again with --resume"
        return _say(f"{error}: {goes_on}", 1)
    said = getattr(error, "format_message", None)  # of typer's own errors
    if said is None:
        raise error
    if not said():  # help was shown in place of a command
        return 2
    context = getattr(error, "ctx", None)
    message = said().removesuffix(".").replace("Input should be", "it should be").replace("Value error, ", "")
    return _say(f"{message} (see {context.command_path if context else 'fedshot'} --help)", 2)


def _say(message: str, status: int) -> int:
    print(f"fedshot: {message}", file=sys.stderr)
    return status
