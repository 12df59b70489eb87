"""One finished run in the terminal: how good, why, at what cost, and what each client had to do with it."""

from itertools import zip_longest
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedshot.changed import variant
from fedshot.report.agreement import PARTS, recipe_in_words
from fedshot.report.wording import bytes_in_words, marks, number_of, seconds_in_words, sparkline
from fedshot.study.statistics import ABSENT

if TYPE_CHECKING:
    from fedshot.record import Record

MOST_CLIENTS = 30  # rows of the table; skipped clients come first when there are more


def run_summary(record: "Record") -> RenderableType:
    """Accuracy of the last evaluation point with its context, the curve if there is one, the clients, the findings."""
    parts: list[RenderableType] = [_headline(record), _setting(record), Text(), _numbers(record)]
    if len(record.curve) > 1:
        parts.append(_curve(record))
    if record.student:
        parts.append(Text(f"\n{record.student.in_words()}"))
    parts += [Text(), _clients(record)]
    if len(record.clients) > MOST_CLIENTS:
        parts.append(Text(f"{number_of(len(record.clients) - MOST_CLIENTS, 'more client')} not shown", style="dim"))
    parts += [Text(f"→ {finding}") for finding in record.findings]
    return Group(*parts)


def _headline(record: "Record") -> Text:
    final = record.final
    line = Text(variant(record.spec.method, record.spec.options), style="bold")
    line.append(f"  {100 * final.accuracy:.1f} %", style="green")
    line.append(f"  after {number_of(final.epoch, 'local epoch')}, 1 seed ({record.spec.seed})", style="dim")
    skipped = sum(client.skipped is not None for client in record.clients)
    for mark in marks(final.inductive, final.phases, skipped, len(record.clients)):
        line.append(f"\n! {mark}", style="yellow")
    return line


def _setting(record: "Record") -> Text:
    spec = record.spec
    told = [spec.data, number_of(spec.clients, "client"), recipe_in_words(record), f"fusion {record.final.fusion}"]
    start = PARTS["weights to start from"](record)
    return Text(" · ".join(filter(None, [*told, spec.encoder, start, record.device])), style="dim")


def _numbers(record: "Record") -> Table:
    """Quality at the left, cost at the right."""
    final, cost = record.final, record.cost
    sent = [client.upload_bytes for client in record.clients if client.skipped is None]
    slowest = seconds_in_words(cost.slowest_client_seconds)
    quality = {
        **(
            {"held-out accuracy": f"{100 * held.accuracy:.1f} % of {held.images:,}"}
            if (held := record.held_out)
            else {}
        ),
        "balanced accuracy": f"{100 * final.balanced_accuracy:.1f} %",
        "worst class": f"{100 * final.worst_class_accuracy:.1f} %",
        "oracle routing": f"{100 * final.oracle_routing:.1f} %",
        "personalised accuracy": _share(final.personalised_accuracy),
        "calibration error": f"{100 * final.calibration_error:.1f} %",
        "negative log-likelihood": f"{final.nll:.3f}",
    }
    price = {
        "upload of a client": bytes_in_words(sum(sent) / max(len(sent), 1)),
        "all clients": f"{seconds_in_words(cost.client_seconds)}, slowest {slowest}",
        "server": seconds_in_words(cost.server_seconds),
        "models at inference": str(cost.models_kept),
        "peak memory": bytes_in_words(cost.peak_memory_bytes),
    }
    grid = Table.grid(padding=(0, 2))
    for style in ("dim", "", "dim", ""):
        grid.add_column(style=style, justify="left" if style else "right")
    for (left, one), (right, other) in zip_longest(quality.items(), price.items(), fillvalue=("", "")):
        grid.add_row(left, one, f"  {right}", Text(other, justify="left"))
    return grid


def _curve(record: "Record") -> Text:
    """From the first evaluation point to the last; the last one is what counts, whatever the highest is."""
    first, last = record.curve[0], record.curve[-1]
    line = Text("\ncurve ", style="dim")
    line.append(sparkline([point.accuracy for point in record.curve]), style="not dim green")
    ends = (f"{100 * point.accuracy:.1f} % after epoch {point.epoch}" for point in (first, last))
    return line.append(f" {' → '.join(ends)}")


def _clients(record: "Record") -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    personal_any = any(client.personalised_accuracy is not None for client in record.clients)
    personal = ("personalised",) if personal_any else ()
    for name in ("client", "samples", "classes", "alone", *personal, "upload", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    skipped_any = any(client.skipped for client in record.clients)
    if skipped_any:
        table.add_column("skipped because", overflow="fold")
    shown = sorted(record.clients, key=lambda c: c.skipped is None) if len(record.clients) > MOST_CLIENTS else None
    counts = record.partition["class_counts"]
    for client in (shown or record.clients)[:MOST_CLIENTS]:
        table.add_row(
            str(client.id),
            f"{client.samples:,}",
            str(sum(count > 0 for count in counts[client.id])),
            _share(client.accuracy_alone),
            *([_share(client.personalised_accuracy)] if personal_any else []),
            bytes_in_words(client.upload_bytes) if client.skipped is None else ABSENT,
            seconds_in_words(client.seconds),
            *([Text(client.skipped or "")] if skipped_any else []),
            style="yellow" if client.skipped else "",
        )
    return table


def _share(value: float | None) -> str:
    return ABSENT if value is None else f"{100 * value:.1f} %"
