"""`fedshot methods`, `fedshot datasets`, `fedshot fusions`: what there is."""

import inspect
import json as json_module
from collections.abc import Callable
from typing import Annotated, Any

import typer

from fedshot.cli.settings import JsonOption, RootOption


def methods(
    name: Annotated[str | None, typer.Argument(help="A method: shows what can be set in it.")] = None,
    json: JsonOption = False,
) -> None:
    """List the methods, or the options of one. The notes' version tags (V4 … V24) are aliases."""
    from fedshot.methods import ALIASES, METHODS, canonical, factory_of

    names = [canonical(name)] if name else list(METHODS)
    rows = []
    for each in names:
        factory = factory_of(each)
        method = factory()
        rows.append(
            {
                "name": each,
                "aliases": [alias for alias, target in ALIASES.items() if target == each],
                "summary": _first_line(factory),
                "fusion": method.fusion.name,
                "phases": method.phases,
                "options": _options(factory),
            }
        )
    _show(rows, json, detailed=name is not None, columns=("name", "aliases", "summary", "fusion"))


def fusions(
    name: Annotated[str | None, typer.Argument(help="A rule: shows what can be set in it.")] = None,
    json: JsonOption = False,
) -> None:
    """List the fusion rules, or the options of one. Options are typed as `features:weights=uniform,scale=unit`."""
    from fedshot.fusion import FUSIONS, fusion_factory

    rows = []
    for each in [name] if name else list(FUSIONS):
        factory = fusion_factory(each)
        rule = factory()
        rows.append(
            {
                "name": each,
                "summary": _first_line(factory),
                "needs": list(rule.needs),
                "inductive": rule.inductive,
                "options": _options(factory),
            }
        )
    _show(rows, json, detailed=name is not None, columns=("name", "summary", "needs", "inductive"))


def datasets(data_root: RootOption = None, json: JsonOption = False) -> None:
    """List the data sets and whether they are at hand. `fedshot data` verifies and downloads them."""
    from dataclasses import asdict

    from fedshot.data.inventory import inventory

    rows = [json_module.loads(json_module.dumps(asdict(entry), default=str)) for entry in inventory(data_root)]
    _show(rows, json, detailed=False, columns=("name", "state", "classes", "size", "where"))


def _first_line(factory: Callable[..., Any]) -> str:
    return (inspect.getdoc(factory) or "").splitlines()[0]


def _options(factory: Callable[..., Any]) -> list[dict[str, Any]]:
    from fedshot.options import options_of

    return [{"key": o.key, "allowed": o.allowed, "default": o.default} for o in options_of(factory).values()]


def _show(rows: list[dict[str, Any]], as_json: bool, detailed: bool, columns: tuple[str, ...]) -> None:
    if as_json:
        typer.echo(json_module.dumps(rows, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    console, table = Console(), Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column == "name")
    for row in rows:
        table.add_row(*(_text(row[column]) for column in columns))
    console.print(table)
    if not detailed:
        return
    console.print("\noptions (--set key=value; the last part of a dotted key is enough where it is unambiguous)")
    options = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("key", "default", "allowed"):
        options.add_column(column)
    for option in rows[0]["options"]:
        options.add_row(option["key"], _text(option["default"]), option["allowed"])
    console.print(options if rows[0]["options"] else "  none")


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(v) for v in value)
    return (
        {True: "yes", False: "no", None: "none"}.get(value, str(value))
        if not isinstance(value, (int, float)) or isinstance(value, bool)
        else str(value)
    )
