"""`fedshot data`: which data sets are at hand, whether they are genuine, and where to get them."""

from typing import Annotated

import typer

from fedshot.cli.lists import datasets
from fedshot.cli.settings import JsonOption, RootOption

data_app = typer.Typer(rich_markup_mode="markdown")


@data_app.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    """List, verify and download data sets. Without a command: list them."""
    if context.invoked_subcommand is None:
        datasets()


@data_app.command("list")
def show(data_root: RootOption = None, json: JsonOption = False) -> None:
    """List the data sets and whether they are at hand."""
    datasets(data_root, json)


@data_app.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(help="data sets; all that are at hand if not given")] = None,
    data_root: RootOption = None,
) -> None:
    """Compare the checksums of files with the official ones. Exit status 1 if one differs."""
    from fedshot.data.inventory import inventory
    from fedshot.data.inventory import verify as check

    wanted = names or [entry.name for entry in inventory(data_root) if entry.state in ("embedded", "present")]
    differs = False
    for name in wanted:
        for file in check(name, data_root):
            typer.echo(f"{name}: {file.file}: {file.state}")
            differs |= file.state == "differs"
    if differs:
        raise typer.Exit(1)


@data_app.command()
def download(
    names: Annotated[list[str], typer.Argument(help="data sets, see `fedshot data list`")],
    data_root: RootOption = None,
) -> None:
    """Fetch data sets from their official places. It resumes a broken download and checks the sum.

    Offline it says which files to put where.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    from fedshot.data.download import download as fetch
    from fedshot.data.locate import data_root as root_of

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[str, TaskID] = {}

        def report(file: str, have: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=have, total=total)

        for name in names:
            for path in fetch(name, root_of(data_root), report):
                typer.echo(path)
