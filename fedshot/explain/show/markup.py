"""Findings as Markdown and as one HTML file, each with its plots inside."""

import base64
from html import escape

from fedshot.explain.engine import Explanation
from fedshot.explain.finding import Finding, Series
from fedshot.explain.show.plain import ends, recurrence, spark, summary, where
from fedshot.explain.show.plot import plot
from fedshot.report.wording import number_of

_STYLE = """
:root{color-scheme:light dark;--line:#8886;--soft:#8882}
body{font:16px/1.5 system-ui,sans-serif;max-width:54rem;margin:2rem auto;padding:0 1rem}
article{border-left:.3rem solid var(--line);padding:.1rem 0 .1rem 1rem;margin:1.5rem 0}
.severe{border-color:#d1495b}.warning{border-color:#d9822b}.note{border-color:#2b7bba}
.severity{font-weight:700;font-size:.85rem}
table{border-collapse:collapse;font-size:.9rem;margin:.5rem 0;display:block;overflow-x:auto}
td,th{text-align:left;padding:.15rem .8rem .15rem 0;border-bottom:1px solid var(--soft);vertical-align:top}
td:nth-child(3){opacity:.7}code{background:var(--soft);padding:.1em .3em;border-radius:.2em;overflow-wrap:anywhere}
figure{display:inline-block;margin:.3rem 1.5rem .3rem 0}figcaption{font-size:.8rem;opacity:.8}svg{max-width:100%}
"""


def as_html(explanation: Explanation) -> str:
    """A page that needs nothing else."""
    body = [f"<h1>What {escape(explanation.path.name or str(explanation.path))} shows</h1>"]
    if len(explanation.runs) > 1:
        body += [f"<h2>Across {number_of(len(explanation.runs), 'run')}</h2>", _html_matrix(explanation)]
        body += [_html_finding(finding) for finding in explanation.across]
    for run in explanation.runs:
        body += [f"<h2>{escape(run.name)}</h2>", f"<p>{escape(summary(run))}</p>"]
        body += [_html_finding(finding) for finding in run.findings] or ["<p>Nothing found.</p>"]
    if not explanation.runs:
        body.append("<p>There is no run to explain.</p>")
    if explanation.problems:
        items = "".join(f"<li>{escape(f'{p.path}: {p.reason}')}</li>" for p in explanation.problems)
        body.append(f"<h2>Left out</h2><ul>{items}</ul>")
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    head += f"<title>{escape(explanation.path.name)}: findings</title><style>{_STYLE}</style>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'


def _html_finding(finding: Finding) -> str:
    rows = [("seen in", where(finding), "")] if where(finding) else []
    rows += [(fact.name, fact.text, fact.limit) for fact in finding.facts]
    table = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    plots = "".join(_html_plot(series) for series in finding.series)
    tries = "".join(f"<li>{_coded(remedy)}</li>" for remedy in finding.remedies)
    return (
        f'<article class="{finding.severity}"><div class="severity">{finding.severity} · {finding.name}</div>'
        f"<h3>{escape(finding.title)}</h3><table>{table}</table>{plots}"
        f"<p><b>Cause.</b> {escape(finding.cause)}</p><p><b>Try</b></p><ul>{tries}</ul></article>"
    )


def _html_plot(series: Series) -> str:
    return f"<figure>{plot(series)}<figcaption>{escape(f'{series.label}: {ends(series)}')}</figcaption></figure>"


def _coded(text: str) -> str:
    """Backticks as code."""
    return "".join(f"<code>{escape(part)}</code>" if n % 2 else escape(part) for n, part in enumerate(text.split("`")))


def _html_matrix(explanation: Explanation) -> str:
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in _matrix_rows(explanation)
    )
    return f"<table><tr><th>finding</th><th>worst</th><th>runs</th><th>methods</th></tr>{rows}</table>"


def _matrix_rows(explanation: Explanation) -> list[tuple[str, str, str, str]]:
    return [
        (
            name,
            severity,
            f"{sum(count for count, _ in counts.values())} of {sum(of for _, of in counts.values())}",
            ", ".join(f"{label} {count}/{of}" for label, (count, of) in counts.items() if count),
        )
        for name, severity, counts in recurrence(explanation)
    ]


def as_markdown(explanation: Explanation) -> str:
    """The same as Markdown; plots are images inside the text."""
    lines = [f"# What {explanation.path.name or explanation.path} shows"]
    if len(explanation.runs) > 1:
        lines += ["", f"## Across {number_of(len(explanation.runs), 'run')}", ""]
        lines += [_line(("finding", "worst", "runs", "methods")), "|---|---|---|---|"]
        lines += [_line(row) for row in _matrix_rows(explanation)]
        lines += [text for finding in explanation.across for text in _markdown_finding(finding)]
    for run in explanation.runs:
        lines += ["", f"## {run.name}", "", summary(run)]
        lines += [text for f in run.findings for text in _markdown_finding(f)] or ["", "Nothing found."]
    if not explanation.runs:
        lines += ["", "There is no run to explain."]
    if explanation.problems:
        lines += ["", "## Left out", "", *(f"- {problem.path}: {problem.reason}" for problem in explanation.problems)]
    return "\n".join(lines) + "\n"


def _markdown_finding(finding: Finding) -> list[str]:
    rows = [("seen in", where(finding), "")] if where(finding) else []
    rows += [(fact.name, fact.text, fact.limit) for fact in finding.facts]
    rows += [(series.label, spark(series), ends(series)) for series in finding.series]
    images = [f"![{series.label}]({_data(plot(series))})" for series in finding.series]
    return [
        "",
        f"### {finding.severity}: {finding.name}",
        "",
        finding.title,
        "",
        _line(("evidence", "value", "threshold")),
        "|---|---|---|",
        *(_line(row) for row in rows),
        *(["", " ".join(images)] if images else []),
        "",
        f"**Cause.** {finding.cause}",
        "",
        *(f"- {remedy}" for remedy in finding.remedies),
    ]


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _data(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
