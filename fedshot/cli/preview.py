"""`fedshot federation preview`: what would leave a client, field by field with bytes, before it leaves."""

from typing import TYPE_CHECKING, Annotated

import typer

from fedshot.cli import settings as s

if TYPE_CHECKING:
    from fedshot.privacy.preview import Preview


def preview(
    method: Annotated[str, typer.Argument(help="a name or alias (`fedshot methods`), with options, or FILE.py")],
    client: Annotated[int, typer.Option("--client", min=0, metavar="<int>", help="which client of the split")] = 0,
    data: s.DataOption = None,
    clients: s.ClientsOption = None,
    alpha: s.AlphaOption = None,
    recipe: s.RecipeOption = None,
    classes_per_client: s.ClassesOption = None,
    partition_file: s.PartitionFileOption = None,
    public: s.PublicOption = None,
    validation: s.ValidationOption = None,
    encoder: s.EncoderOption = None,
    epochs: s.EpochsOption = None,
    batch_size: s.BatchOption = None,
    seed: s.SeedOption = None,
    fusion: s.FusionOption = None,
    set: s.SetOption = None,
    data_root: s.RootOption = None,
    json: s.JsonOption = False,
) -> None:
    """List exactly what would leave a client: header, every tensor, telemetry, summary, each with its bytes.

    Nothing is trained and nothing is sent. Bytes are those of the message, without what the network adds.

    **Examples**

    - `fedshot federation preview fafi` the first of five clients of the digits

    - `fedshot federation preview fafi --fusion nearest_prototype --set counts=exact --client 2`

    - `fedshot federation preview fedavg --data folder:PATH --recipe iid --clients 1` your own pictures, all of them
    """
    from fedshot.cli.train import spec_fields
    from fedshot.errors import UserError
    from fedshot.prepare import prepare
    from fedshot.privacy.preview import preview as listed

    spec = s.build_spec(method, spec_fields(locals()), set, None)
    if client >= spec.clients:
        raise UserError(f"there is no client {client}: the clients are 0 to {spec.clients - 1}")
    found = listed(prepare(spec, data_root), client)
    if json:
        typer.echo(found.model_dump_json(indent=1))
    else:
        show(found)


def show(found: "Preview") -> None:
    """A preview as a table."""
    from rich.console import Console
    from rich.table import Table

    from fedshot.report.wording import bytes_in_words

    console = Console(highlight=False)
    console.print(f"client {found.client} would send, for fusion {found.fusion}:", style="bold")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("part", "shape", "type", "bytes", "says"):
        table.add_column(column, justify="right" if column == "bytes" else "left", overflow="fold")
    table.add_row("header", "", "JSON", f"{found.header_bytes:,}", "typed fields, and the names of all tensors")
    for field in found.header:
        value = field.value if field.known else "known after training"
        table.add_row(f"  {field.name}", "", "", "", f"{value}: {field.says}")
    for section in found.sections:
        shows = f"; shows {section.shows_counts}" if section.shows_counts else ""
        table.add_row(section.name, "", "", f"{section.bytes:,}", section.says + shows)
        for tensor in section.tensors:
            table.add_row(f"  {tensor.name}", "×".join(map(str, tensor.shape)), tensor.type, f"{tensor.bytes:,}", "")
    rows = f"{found.telemetry_rows} rows of {len(found.telemetry_columns)}"
    table.add_row("telemetry", rows, "JSON", f"≤ {found.telemetry_bytes:,}", found.telemetry_says)
    table.add_row("summary", "", "JSON", f"≤ {found.summary_bytes:,}", ", ".join(field.name for field in found.summary))
    console.print(table)
    exactly = "exactly" if found.exact else "at most"
    console.print(f"upload: {exactly} {found.upload_bytes:,} bytes ({bytes_in_words(found.upload_bytes)})")
    console.print(f"with telemetry and summary: at most {found.total_bytes:,} bytes", style="dim")
    if found.stays:
        console.print(f"made and not sent: {', '.join(found.stays)}", style="dim")
