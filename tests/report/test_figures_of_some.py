"""Personalised and held-out accuracy stand where a user looks: after a run, under a comparison, in its report."""

import io
from collections.abc import Callable

from rich.console import Console, RenderableType

from fedshot.record import HeldOut, Record
from fedshot.report import as_markdown, as_table, comparison, run_summary
from fedshot.report.cells import comparison_cells
from fedshot.report.comparison_table import known


def printed(shown: RenderableType, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(shown)
    return console.file.getvalue()  # type: ignore[attr-defined]


def telling(record: Record, value: float) -> Record:
    """The record of a run that knows its personalised accuracy, and a tenth more of what clients hold back."""
    clients = tuple(client.model_copy(update={"personalised_accuracy": value}) for client in record.clients)
    final = record.final.model_copy(update={"personalised_accuracy": value})
    held_out = HeldOut(images=20, accuracy=value + 0.1, balanced_accuracy=value, nll=1.0)
    return record.model_copy(update={"clients": clients, "final": final, "held_out": held_out})


def test_a_run_shows_it_overall_and_for_each_client(make_record: Callable[..., Record]) -> None:
    text = printed(run_summary(telling(make_record(), 0.625)))
    assert "personalised accuracy 62.5 %" in " ".join(text.split())
    assert "held-out accuracy 72.5 % of 20" in " ".join(text.split())
    first = next(line for line in text.splitlines() if line.strip().startswith("0 "))
    assert first.split() == ["0", "35", "2", "40.0", "%", "62.5", "%", "1.00", "MB", "1.5", "s"]
    assert max(map(len, text.splitlines())) <= 80


def test_a_comparison_shows_it_whatever_the_width(make_record: Callable[..., Record]) -> None:
    runs = {name: [telling(make_record(name, s), v) for s in (1, 2, 3)] for name, v in (("fafi", 0.75), ("etf", 0.5))}
    found = comparison({**runs, "old": [make_record("aurora", s) for s in (1, 2, 3)]})
    narrow, wide = printed(as_table(found, 80)), printed(as_table(found, 120), 120)
    assert "Personalised accuracy %: fafi 75.0, etf 50.0, old –." in narrow
    assert "Held-out accuracy %: fafi 85.0, etf 60.0, old –." in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    assert "personalised" in wide.splitlines()[1] and "Personalised accuracy %" not in wide
    assert "| personalised |" in as_markdown(found) and "| 75.0 |" in as_markdown(found)
    assert "on images that clients hold back, 20 or more" in " ".join(narrow.split())
    assert "| held-out |" in as_markdown(found) and "| 85.0 |" in as_markdown(found)
    cells = [comparison_cells(row, known(found)) for row in found.rows]
    assert [cell["personalised"].text for cell in cells] == ["75.0", "50.0", "–"]
    assert [cell["held-out"].text for cell in cells] == ["85.0", "60.0", "–"]


def test_records_that_do_not_tell_leave_the_terminal_as_it_was(make_record: Callable[..., Record]) -> None:
    found = comparison({"fafi": [make_record()]})
    text = printed(as_table(found)) + as_markdown(found) + printed(run_summary(make_record()))
    assert "ersonalised accuracy %" not in text and "eld-out" not in text
    assert not {"personalised", "held-out"} & comparison_cells(found.rows[0], known(found)).keys()
    some = comparison({"fafi": [telling(make_record("fafi", 1), 0.75), make_record("fafi", 2)]})
    assert known(some) == (), "a mean over one seed would stand beside those over two"
