"""Findings in a terminal: a coloured word, a sentence, the evidence as a table with sparklines, cause and remedies."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedshot.explain.engine import Explanation
from fedshot.explain.finding import Finding
from fedshot.explain.show.plain import ends, recurrence, spark, summary, where
from fedshot.report.wording import number_of

_MOST_NAMED = 5  # methods that have a finding; more are counted
_MOST_LISTED = 12  # runs; a terminal is no place for the titles of more
_STYLES = {"severe": "bold red", "warning": "bold yellow", "note": "bold cyan"}


def as_text(explanation: Explanation) -> RenderableType:
    """One run in full; of several, the titles, and what holds across them last, where the reader looks first.

    Of many, only what holds across them.
    """
    several, many = len(explanation.runs) > 1, len(explanation.runs) > _MOST_LISTED
    parts: list[RenderableType] = []
    for run in () if many else explanation.runs:
        parts.append(Text.assemble((run.name, "bold"), "  ", (summary(run), "dim")))
        parts += [_title(finding) if several else _finding(finding) for finding in run.findings]
        parts.append(Text("" if run.findings else "  nothing found\n", style="green"))
    if several:
        parts += [
            Text(f"Across {number_of(len(explanation.runs), 'run')}\n", style="bold"),
            _matrix(explanation),
            Text(),
        ]
        parts += [_finding(finding) for finding in explanation.across]
        parts.append(Text(f"evidence of a run: fedshot explain {explanation.runs[0].path}; of all: --html FILE", "dim"))
    if not explanation.runs:
        parts.append(Text(f"{explanation.path}: there is no run to explain"))
    parts += [Text(f"left out: {problem.path}: {problem.reason}", style="yellow") for problem in explanation.problems]
    return Group(*parts)


def _title(finding: Finding) -> RenderableType:
    word = Text.assemble((finding.severity, _STYLES[finding.severity]), "  ", (finding.name, "dim"))
    return Padding(Group(word, Text(finding.title)), (0, 0, 0, 2))


def _finding(finding: Finding) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", max_width=44)
    table.add_column(overflow="fold")
    table.add_column(style="dim", overflow="fold")
    if seen := where(finding):
        table.add_row("seen in", seen, "")
    for fact in finding.facts:
        table.add_row(fact.name, Text(fact.text), fact.limit)
    for series in finding.series:
        table.add_row(series.label, Text(spark(series), style="green"), ends(series))
    said = Text.assemble(("cause  ", "dim"), finding.cause)
    return Group(
        _title(finding),
        Padding(Group(table, said), (0, 0, 0, 2)),
        *(part for remedy in finding.remedies for part in _remedy(remedy)),
        Text(),
    )


def _remedy(text: str) -> Iterator[RenderableType]:
    """What to try; a command at its end on a line of its own that is never broken, to be copied as it is."""
    words, _, command = text[:-1].rpartition("`") if text.endswith("`") else (text, "", "")
    yield Padding(Text.assemble(("try    ", "dim"), words.rstrip()), (0, 0, 0, 2))
    if command:
        yield Text(f"    {command}", no_wrap=True, overflow="ignore")


def _matrix(explanation: Explanation) -> Table:
    """In how many of how many runs a finding is, for each method that has it."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("finding", "worst", "runs", "methods"):
        table.add_column(column, overflow="fold")
    for name, severity, counts in recurrence(explanation):
        found, all_runs = (sum(pair[place] for pair in counts.values()) for place in (0, 1))
        having = [f"{label} {count}/{of}" for label, (count, of) in counts.items() if count]
        methods = ", ".join(having) if len(having) <= _MOST_NAMED else f"{len(having)} of {len(counts)}"
        table.add_row(name, Text(severity, style=_STYLES[severity]), f"{found} of {all_runs}", Text(methods))
    return table
