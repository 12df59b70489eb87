"""Personalised accuracy stands where a user looks: after a run, under a comparison, in its report."""

import io
from collections.abc import Callable

from rich.console import Console, RenderableType

from fedshot.record import Record
from fedshot.report import as_markdown, as_table, comparison, run_summary
from fedshot.report.cells import comparison_cells


def printed(shown: RenderableType, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(shown)
    return console.file.getvalue()  # type: ignore[attr-defined]


def telling(record: Record, value: float) -> Record:
    """The record of a run that knows its personalised accuracy."""
    clients = tuple(client.model_copy(update={"personalised_accuracy": value}) for client in record.clients)
    final = record.final.model_copy(update={"personalised_accuracy": value})
    return record.model_copy(update={"clients": clients, "final": final})


def test_a_run_shows_it_overall_and_for_each_client(make_record: Callable[..., Record]) -> None:
    text = printed(run_summary(telling(make_record(), 0.625)))
    assert "personalised accuracy 62.5 %" in " ".join(text.split())
    first = next(line for line in text.splitlines() if line.strip().startswith("0 "))
    assert first.split() == ["0", "35", "2", "40.0", "%", "62.5", "%", "1.00", "MB", "1.5", "s"]
    assert max(map(len, text.splitlines())) <= 80


def test_a_comparison_shows_it_whatever_the_width(make_record: Callable[..., Record]) -> None:
    runs = {name: [telling(make_record(name, s), v) for s in (1, 2, 3)] for name, v in (("fafi", 0.75), ("etf", 0.5))}
    found = comparison({**runs, "old": [make_record("aurora", s) for s in (1, 2, 3)]})
    narrow, wide = printed(as_table(found, 80)), printed(as_table(found, 120), 120)
    assert "Personalised accuracy %: fafi 75.0, etf 50.0, old –." in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    assert "personalised" in wide.splitlines()[1] and "Personalised accuracy %" not in wide
    assert "| personalised |" in as_markdown(found) and "| 75.0 |" in as_markdown(found)
    assert [comparison_cells(row)["personalised"].text for row in found.rows] == ["75.0", "50.0", "–"]


def test_records_that_do_not_tell_leave_the_terminal_as_it_was(make_record: Callable[..., Record]) -> None:
    text = printed(as_table(comparison({"fafi": [make_record()]})))
    assert "ersonalised" not in text
