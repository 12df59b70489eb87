"""`fedshot federation`: one shot over real machines."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from fedshot.cli import settings as s
from fedshot.cli.preview import preview
from fedshot.cli.train import spec_fields
from fedshot.errors import UserError

federation_app = typer.Typer(
    rich_markup_mode="markdown",
    no_args_is_help=True,
    help="""One shot over real machines, on Flower: closed by default, and with the same record as a local run.

    **At the server**

    - `fedshot federation init --host fl.example.org --client hospital-a --client hospital-b`

    - `fedshot federation up`, then hand each client its `federation/bundles/NAME.join`

    - `fedshot federation run fafi --data digits --out runs/first`

    **At a client**

    - `fedshot federation join hospital-a.join --data folder:/data/scans`
    """,
)

federation_app.command()(preview)

ServerArgument = Annotated[Path, typer.Argument(help="folder of the federation, at the server")]
FederationOption = Annotated[Path, typer.Option("--federation", "-F", help="folder of the federation, at the server")]
_DEFAULT = Path("federation")


@federation_app.command()
def init(
    folder: ServerArgument = _DEFAULT,
    host: Annotated[
        str | None,
        typer.Option("--host", help="name or address by which clients reach this machine; localhost for a rehearsal"),
    ] = None,
    client: Annotated[list[str] | None, typer.Option("--client", "-c", help="name of a client, repeatable")] = None,
    clients: Annotated[
        int | None, typer.Option("--clients", "-k", min=1, help="so many clients, named client-0, client-1 …")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="of the proxy, for clients (9443)")
    ] = None,
    engine_port: Annotated[
        int | None, typer.Option("--engine-port", min=1, max=65535, help="of the engine, on this machine alone (9444)")
    ] = None,
    renew: Annotated[
        list[str] | None,
        typer.Option(
            "--renew", help="a client whose bundle was lost or seen by others: a new key, the old one is refused"
        ),
    ] = None,
) -> None:
    """Make a federation: authority, server certificate, a key and a join bundle for each client, nginx configuration.

    Called again, it adds clients, renews keys, or changes host and ports; what is there is kept.

    **Examples**

    - `fedshot federation init --host fl.example.org --client hospital-a --client hospital-b`

    - `fedshot federation init --host localhost --clients 3` a rehearsal on one machine

    - `fedshot federation init --client hospital-c` one more; then `fedshot federation up` lets it in
    """
    from fedshot.federation.engine import require_engine

    require_engine()
    from fedshot.federation.layout import ServerFolder
    from fedshot.federation.operations import compose, found, services

    server = ServerFolder(folder)
    names = [*(client or []), *(f"client-{number}" for number in range(clients or 0))]
    changes = {"host": host, "port": port, "engine_port": engine_port}
    given = {name: value for name, value in changes.items() if value is not None}
    federation = compose(server, names, given)
    bundles = found(server, federation, renew or [])
    for bundle in bundles:
        typer.echo(f"bundle: {bundle}")
    where = f"{federation.address}, {len(federation.members)} clients"
    typer.echo(f"federation: {server.path} ({where})")
    running = services(server)[0].pid() is not None
    if running and given:
        typer.echo("it is up with its old settings: take it down and up again")
    elif bundles:
        typer.echo(f"next: fedshot federation up{_typed(folder)}; then hand each client its bundle over a safe channel")


@federation_app.command()
def up(
    folder: ServerArgument = _DEFAULT,
    no_proxy: Annotated[
        bool, typer.Option("--no-proxy", help="do not start nginx: a proxy of your own does what nginx.conf says")
    ] = False,
) -> None:
    """Start the engine on the loopback interface and the proxy in front of it, and let the clients' keys in.

    What is up already stays up: it is safe to call it again.
    """
    from fedshot.federation.layout import ServerFolder
    from fedshot.federation.operations import bring_up

    server = ServerFolder(folder)
    bring_up(server, not no_proxy, lambda said: typer.echo(said, err=True))
    federation = server.read()
    typer.echo(f"up: {len(federation.members)} clients may join at {federation.address}")


@federation_app.command()
def down(
    folder: Annotated[Path, typer.Argument(help="folder of the federation, or of a client's site")] = _DEFAULT,
) -> None:
    """End everything that `up` started, or a client that joined. Uploads, checkpoints and keys stay."""
    from fedshot.federation.joining import leave
    from fedshot.federation.layout import ServerFolder
    from fedshot.federation.lookout import site_of
    from fedshot.federation.operations import take_down

    site = site_of(folder)
    if site is None:
        server = ServerFolder(folder)
        server.read()
        ended = take_down(server)
    else:
        ended = leave(site)
    typer.echo(f"down: {ended} processes ended" if ended else "down: nothing was running")


@federation_app.command()
def join(
    bundle: Annotated[Path, typer.Argument(help="the NAME.join of this client, or its site folder once it has joined")],
    data: Annotated[
        str | None,
        typer.Option("--data", "-d", help="its private data: folder:PATH, a share .npz, or a data set by name"),
    ] = None,
    site: Annotated[Path | None, typer.Option("--site", help="folder of this client (default: site-NAME)")] = None,
    data_root: s.RootOption = None,
    device: s.DeviceOption = "auto",
    counts: Annotated[
        str | None,
        typer.Option("--counts", help="what of the class counts leaves (default: exact), see docs/privacy.md"),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", help="a method or anchors that a job may ask for, repeatable: read it before you allow it"
        ),
    ] = None,
    stall_seconds: Annotated[
        float | None,
        typer.Option("--stall-seconds", min=1, help="a training without a step for so long is ended (600)"),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="go on in the background; `down SITE` ends it")] = False,
) -> None:
    """Join a federation with data that stay on this machine, and work for it until Ctrl-C.

    **Examples**

    - `fedshot federation join hospital-a.join --data folder:/data/scans`

    - `fedshot federation join site-hospital-a` again, with what was said the first time
    """
    from fedshot.federation.engine import require_engine

    require_engine()
    from fedshot.cli.joined import wait_detached, watch
    from fedshot.federation.joining import settle

    changes: dict[str, object] = {}
    if data is not None:
        changes["data"] = _absolute(data)
    if data_root is not None:
        changes["data_root"] = data_root.absolute()
    if device != "auto" or not bundle.is_dir():
        changes["device"] = s.device_of(device).partition(",")[0]
    if counts is not None:
        changes["counts"] = counts
    if file:
        changes["files"] = [path.absolute() for path in file]
    if stall_seconds is not None:
        changes["stall_seconds"] = stall_seconds
    place = settle(bundle, site, changes)
    (wait_detached if detach else watch)(place)


def _absolute(data: str) -> str:
    """Where private data lie, whatever folder the engine works in."""
    if data.startswith("folder:"):
        return f"folder:{Path(data.removeprefix('folder:')).expanduser().absolute()}"
    return str(Path(data).expanduser().absolute()) if data.endswith(".npz") else data


def _typed(folder: Path) -> str:
    """A folder as it must be typed; nothing for the usual one."""
    return "" if folder == _DEFAULT else f" {folder}"


@federation_app.command()
def run(
    method: Annotated[
        str, typer.Argument(help="a name or alias (`fedshot methods`), with options as `etf:weight=0`, or FILE.py")
    ],
    federation: FederationOption = _DEFAULT,
    data: s.DataOption = None,
    alpha: s.AlphaOption = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe", help="own: clients hold what they hold; any other: a rehearsal of that split (default: own)"
        ),
    ] = None,
    classes_per_client: s.ClassesOption = None,
    partition_file: s.PartitionFileOption = None,
    public: s.PublicOption = None,
    validation: s.ValidationOption = None,
    encoder: s.EncoderOption = None,
    pretrained: s.PretrainedOption = None,
    epochs: s.EpochsOption = None,
    batch_size: s.BatchOption = None,
    seed: s.SeedOption = None,
    fusion: s.FusionOption = None,
    set: s.SetOption = None,
    device: s.DeviceOption = "auto",
    data_root: s.RootOption = None,
    deadline: Annotated[
        float, typer.Option("--deadline", min=1, help="seconds after which the server fuses what has arrived")
    ] = 3600.0,
    late: Annotated[
        float, typer.Option("--late", min=0, help="seconds that it then waits for late uploads, for `fedshot fuse`")
    ] = 0.0,
    min_clients: Annotated[
        int, typer.Option("--min-clients", min=1, metavar="<int>", help="fewer uploads make no record")
    ] = 1,
    screen: Annotated[
        str, typer.Option("--screen", help="poisoned uploads: off, report, or exclude what is suspicious")
    ] = "off",
    section: Annotated[
        list[str] | None,
        typer.Option("--section", help="a section of the uploads beside those that the fusion rule needs, repeatable"),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="folder of the run (default: runs/NAME)")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="keep what has arrived and ask the others again; they answer from disk")
    ] = False,
    json: s.JsonOption = False,
) -> None:
    """Ask every client for its one upload, fuse what arrives before the deadline, write the record.

    The data set named here is the server's own: its label names, the form of its images and its test images.

    **Examples**

    - `fedshot federation run fafi --data digits --epochs 20 --out runs/first`

    - `fedshot federation run fafi --data digits --out runs/first --resume` asks those who are missing again

    - `fedshot federation run aurora --data folder:/data/reference --deadline 86400 --min-clients 2`
    """
    given = spec_fields(locals())
    from fedshot.federation.engine import require_engine

    require_engine()
    from fedshot.cli.conducted import conducted
    from fedshot.federation.launch import nodes_of
    from fedshot.federation.layout import ServerFolder
    from fedshot.federation.plan import Plan
    from fedshot.spec import first_problem

    server = ServerFolder(federation)
    clients = len(server.read().members)
    typed = {**given, "clients": clients, "recipe": recipe or ("own" if partition_file is None else None)}
    spec = s.build_spec(method, typed, set, None)
    try:
        plan = Plan(
            nodes=nodes_of(server),
            data_root=data_root.absolute() if data_root else None,
            device=s.device_of(device).partition(",")[0],
            deadline_seconds=deadline,
            late_seconds=late,
            min_clients=min_clients,
            screen=screen,
            sections=tuple(section or ()),
        )
    except ValidationError as error:
        raise UserError(first_problem(error)) from None
    record, folder = conducted(server, spec, out, plan, resume, quiet=json)
    if json:
        typer.echo(record.model_dump_json(indent=1))
        return
    from rich.console import Console

    from fedshot.report import run_summary

    Console().print(run_summary(record))
    typer.echo(f"record: {folder / 'record.json'}")


@federation_app.command()
def status(
    folder: Annotated[
        Path, typer.Argument(help="folder of the federation, of a run, or of a client's site")
    ] = _DEFAULT,
    json: s.JsonOption = False,
) -> None:
    """Show how a federation stands: processes, who is online, and of its last run one row for each client.

    Of the folder of a run it shows that run; of a client's site whether it is connected, and its jobs.
    """
    from fedshot.cli.standing import show_run, show_server, show_site
    from fedshot.federation.layout import ServerFolder
    from fedshot.federation.lookout import site_of

    if (folder / "ledger.jsonl").exists():
        show_run(folder, json)
    elif (site := site_of(folder)) is not None:
        show_site(site, json)
    else:
        show_server(ServerFolder(folder), json)
