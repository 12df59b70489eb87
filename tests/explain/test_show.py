"""The same findings in a terminal, as Markdown, as a page and as JSON; and remedies that can be typed."""

import base64
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer
from rich.console import Console

from fedshot.cli import app
from fedshot.cli.settings import build_spec
from fedshot.explain import Explanation, explain_path
from fedshot.explain.finding import Fact, Finding, Series
from fedshot.explain.run import Run
from fedshot.explain.show import as_html, as_json, as_markdown, as_text, selected
from fedshot.explain.show.plain import spark
from fedshot.explain.show.plot import plot
from fedshot.fusion import make_fusion
from fedshot.methods import factory_of
from fedshot.options import resolve
from fedshot.spec import Spec

VOID = {"meta", "br", "polyline", "line"}


class Balanced(HTMLParser):
    """Fails on a tag that is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def exploded(alone: Callable[..., Run]) -> Explanation:
    return explain_path(alone("V12", 12, {"sigma.learning_rate": 0.1}).path)


@pytest.fixture(scope="module")
def hostile(exploded: Explanation) -> Explanation:
    """A finding whose words are markup."""
    odd = Finding("odd", "note", "<b> & [bold] | `x`", (Fact("<i>", "a|b"),), "<script>", ("`fedshot <x>`",))
    return replace(exploded, runs=(replace(exploded.runs[0], name="<run>", findings=(odd,)),))


def printed(explanation: Explanation) -> str:
    console = Console(file=StringIO(), width=120, highlight=False)
    console.print(as_text(explanation))
    return console.file.getvalue()


def test_the_terminal_shows_severity_evidence_cause_and_remedy(exploded: Explanation) -> None:
    text = printed(exploded)
    finding = next(f for f in exploded.runs[0].findings if f.name == "lambda_explosion")
    assert f"{finding.severity}  lambda_explosion" in text and "cause" in text and "try" in text
    assert spark(finding.series[0]) in text and "≥ 10" in text


def test_words_are_never_taken_for_markup(hostile: Explanation) -> None:
    assert "<b> & [bold] | `x`" in printed(hostile)
    page = as_html(hostile)
    assert "<script>" not in page and "<run>" not in page and "&lt;b&gt; &amp; [bold]" in page
    assert r"| <i> | a\|b |" in as_markdown(hostile)


def test_the_page_is_whole_and_needs_no_network(exploded: Explanation) -> None:
    page, parser = as_html(exploded), Balanced()
    parser.feed(page)
    assert parser.open == [] and parser.links == []
    assert "lambda_explosion" in page and page.count("<svg") >= 2 and "prefers" not in page
    assert "color-scheme:light dark" in page and 'name="viewport"' in page


def test_markdown_holds_its_plots(exploded: Explanation) -> None:
    text = as_markdown(exploded)
    images = re.findall(r"\(data:image/svg\+xml;base64,([^)]+)\)", text)
    assert len(images) == sum(len(finding.series) for finding in exploded.runs[0].findings)
    for image in images:
        assert ElementTree.fromstring(base64.b64decode(image)).tag.endswith("svg")


def test_json_is_complete_and_plain(exploded: Explanation) -> None:
    odd = Finding("odd", "note", "1", (Fact("x", float("inf")), Fact("y", 0.25, "%")), "c", ())
    found = replace(exploded, runs=(replace(exploded.runs[0], findings=(odd, *exploded.runs[0].findings)),))
    back = json.loads(json.dumps(as_json(found), allow_nan=False))
    assert back["runs"][0]["findings"][0]["facts"][0]["value"] is None
    assert back["runs"][0]["findings"][0]["facts"][1] == {"name": "y", "value": 0.25, "unit": "share", "limit": ""}
    assert {"name", "severity", "title", "facts", "cause", "remedies", "clients", "epochs", "series", "run"} == set(
        back["runs"][0]["findings"][1]
    )


def test_notes_can_be_left_out(exploded: Explanation) -> None:
    assert any(finding.severity == "note" for finding in exploded.runs[0].findings)
    for least, shown in (("warning", {"severe", "warning"}), ("severe", {"severe"})):
        kept = selected(exploded, least)  # type: ignore[arg-type]
        assert {finding.severity for finding in kept.runs[0].findings} <= shown


@pytest.mark.parametrize("values", [(1.0,), (0.0, 0.0), (-1.0, 2.0, 1.0), tuple(float(n) for n in range(1, 300))])
def test_plots_of_any_series(values: tuple[float, ...]) -> None:
    series = Series("x", tuple(range(1, len(values) + 1)), values, log=True)
    assert ElementTree.fromstring(plot(series)).tag.endswith("svg")
    assert 1 <= len(spark(series)) <= 41


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """A command line through typer's own parser, without running the command."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("fedshot", list(words), resilient_parsing=False)
    name, command, words = command.resolve_command(context, words)
    return name, {} if "--help" in words else command.make_context(name, list(words), parent=context).params


def test_every_remedy_can_be_typed(exploded: Explanation, alone: Callable[..., Run], healthy: Path) -> None:
    others = [
        alone("V10", 4, {"form": "first", "sigma.learning_rate": 0.05}).path,
        alone("V11", 20, {"sigma.learning_rate": 0.02}).path,
        alone("V7", 3, {"weight": 5000.0, "anneal": "constant"}, clip_scope="joint").path,
        alone("V7", 6, {"weight": 100.0, "anchors": "zero"}).path,
    ]
    runs = [*exploded.runs, *(run for path in others for run in explain_path(path).runs)]
    remedies = [remedy for run in runs for finding in run.findings for remedy in finding.remedies]
    commands = {command for remedy in remedies for command in re.findall(r"`(fedshot [^`]+)`", remedy)}
    assert len(commands) > 10
    for line in commands:
        name, given = parsed(shlex.split(line)[1:])
        if name == "run":
            fields = {key: given[key] for key in given if key in Spec.model_fields and key != "method"}
            fields.pop("evaluate_at")
            spec = build_spec(given["method"], fields, given["set"], None)
            resolve(factory_of(spec.method), spec.options, line)
        for rule in (given.get("fusion") or []) if name == "fuse" else []:
            make_fusion(rule)


def test_many_runs_are_told_together(exploded: Explanation) -> None:
    def shown(explanation: Explanation) -> str:
        console = Console(file=StringIO(), width=100)
        console.print(as_text(explanation))
        return console.file.getvalue()  # type: ignore[attr-defined]

    (run,) = exploded.runs
    few, many = (shown(replace(exploded, runs=(run,) * count)) for count in (12, 13))
    assert few.count(run.findings[0].title[:40]) >= 12
    assert "Across 13 runs" in many and run.findings[0].title[:40] not in many
    assert f"{run.findings[0].name}" in many and "13 of 13" in many
