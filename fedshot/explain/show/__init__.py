"""Explanations to read: in a terminal, as Markdown, as a page, as JSON."""

from fedshot.explain.show.markup import as_html, as_markdown
from fedshot.explain.show.plain import as_json, selected
from fedshot.explain.show.terminal import as_text

__all__ = ["as_html", "as_json", "as_markdown", "as_text", "selected"]
