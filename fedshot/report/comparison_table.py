"""Methods side by side as a table: in a terminal, in Markdown."""

from collections.abc import Callable
from functools import partial

from rich import box
from rich.table import Table
from rich.text import Text

from fedshot.report.comparison import SOME, Comparison, Row
from fedshot.report.wording import bytes_in_words, seconds_in_words
from fedshot.study.statistics import ABSENT, percent, points


def difference_in_words(row: Row) -> str:
    """The paired difference to the first method, which itself is the reference."""
    return "reference" if row.difference is None else points(row.difference)


def some_in_words(row: Row, name: str) -> str:
    """A figure that not every record has, in percent."""
    share = row.some[name]
    return ABSENT if share is None else f"{100 * share.mean:.1f}"


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "accuracy %": lambda row: percent(row.accuracy),
    "difference": difference_in_words,
    "upload": lambda row: bytes_in_words(row.upload_bytes),
    "clients": lambda row: seconds_in_words(row.client_seconds),
    "server": lambda row: seconds_in_words(row.server_seconds),
}
_MORE_COLUMNS: dict[str, Callable[[Row], str]] = {
    "worst class": lambda row: f"{100 * row.worst_class.mean:.1f}",
    "calibration": lambda row: f"{100 * row.calibration_error.mean:.1f}",
    "oracle routing": lambda row: f"{100 * row.oracle_routing.mean:.1f}",
    **{name: partial(some_in_words, name=name) for name in SOME},
    "models kept": lambda row: str(row.models_kept),
}


def known(comparison: Comparison) -> tuple[str, ...]:
    """Names of the figures that not every record has, and a row of these does."""
    return tuple(name for name in SOME if any(row.some[name] for row in comparison.rows))


def legend(comparison: Comparison) -> str:
    """What the columns are."""
    difference = (
        f"Difference: paired over seeds to {comparison.reference}, the first method, in points [95 % interval]. "
        if len(comparison.rows) > 1
        else ""
    )
    images = min((row.held_out_images for row in comparison.rows if row.some["held-out"]), default=0)
    told = "".join(SOME[name].meaning.format(images=f"{images:,}") + " " for name in known(comparison))
    return (
        "Accuracy on all test images after the last epoch, mean ± sample deviation over seeds. "
        f"{difference}{told}Upload: of one client. Seconds: all clients together, and the server."
    )


def as_table(comparison: Comparison, width: int = 100) -> Table:
    """For a terminal of that many columns, at least 80; 110 show more figures of quality.

    Marks stand under the name of a method, warnings under the table, as do held-out and personalised accuracy without a
    column of their own. The highest mean is bold.
    """
    told = known(comparison)
    wide = ("worst class", "calibration", *told) if width >= 110 else ()
    more = {name: _MORE_COLUMNS[name] for name in wide}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption_justify="left", caption_style="")
    table.add_column("method", overflow="fold")
    for name in (*_COLUMNS, *more):
        table.add_column(name, justify="right", no_wrap=name != "difference")
    for row in comparison.rows:
        shown = Text(row.label, style="bold" if row is comparison.best else "")
        for mark in row.marks:
            shown.append(f"\n{mark}", style="yellow not bold")
        table.add_row(shown, *(Text(tell(row)) for tell in (*_COLUMNS.values(), *more.values())))
    caption = Text(comparison.setting, style="bold")
    for name in told if not more else ():
        each = ", ".join(f"{row.label} {some_in_words(row, name)}" for row in comparison.rows)
        caption.append(f"\n{name.capitalize()} accuracy %: {each}.", style="not bold")
    caption.append(f"\n{legend(comparison)}", style="not bold dim")
    for warning in comparison.warnings:
        caption.append(f"\n! {warning}", style="not bold yellow")
    table.caption = caption
    return table


def as_markdown(comparison: Comparison) -> str:
    """A table that ends with what was measured and what to beware of."""
    unknown = SOME.keys() - set(known(comparison))
    columns = {name: tell for name, tell in {**_COLUMNS, **_MORE_COLUMNS}.items() if name not in unknown}
    lines = [
        f"| method | {' | '.join(columns)} |",
        f"|---|{'--:|' * len(columns)}",
    ]
    for row in comparison.rows:
        name = row.label.replace("|", "\\|") + (f" ({'; '.join(row.marks)})" if row.marks else "")
        lines.append(f"| {name} | {' | '.join(tell(row) for tell in columns.values())} |")
    lines += ["", f"{comparison.setting}.", "", legend(comparison)]
    lines += [f"\n**{warning}**" for warning in comparison.warnings]
    return "\n".join(lines) + "\n"
