"""`fedshot methods`, `fedshot datasets`, `fedshot fusions`: what there is."""

import inspect
import json as json_module
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedshot.cli.settings import JsonOption, RootOption

if TYPE_CHECKING:
    from rich.table import Table

Row = dict[str, Any]


def methods(
    name: Annotated[str | None, typer.Argument(help="a method: shows what can be set in it")] = None,
    json: JsonOption = False,
) -> None:
    """List the methods, or the options of one. The notes' version tags (V4 … V24) are aliases.

    **Examples**

    - `fedshot methods V12` what can be set in etf_decoupled

    - `fedshot methods my_variant.py` and in a variant of your own
    """
    from fedshot.methods import ALIASES, METHODS, canonical, factory_of, make_method

    def row(each: str) -> Row:
        factory = factory_of(each)
        options = _options(factory)
        method = None if any(option["required"] for option in options) else make_method(each, {})
        return {
            "name": each,
            "aliases": [alias for alias, target in ALIASES.items() if target == each],
            "summary": _first_line(factory),
            "fusion": method.fusion.name if method else None,
            "phases": method.phases if method else None,
            "options": options,
        }

    rows = [row(each) for each in ([canonical(name)] if name else METHODS)]
    if json:
        typer.echo(json_module.dumps(rows, indent=1))
    elif name:
        facts = {"alias": ", ".join(rows[0]["aliases"]), "fusion": rows[0]["fusion"] or ""}
        _details(rows[0], facts, f"fedshot run {name} --set KEY=VALUE")
    else:
        _list(("name", "alias", "summary"), [[r["name"], ", ".join(r["aliases"]), r["summary"]] for r in rows])


def fusions(
    name: Annotated[str | None, typer.Argument(help="a rule: shows what can be set in it")] = None,
    json: JsonOption = False,
) -> None:
    """List the fusion rules, or the options of one. Options are typed as `features:weights=uniform,scale=unit`."""
    from fedshot.fusion import FUSIONS, fusion_factory, make_fusion

    def row(each: str) -> Row:
        factory = fusion_factory(each)
        options = _options(factory)
        rule = None if any(option["required"] for option in options) else make_fusion(each)
        return {
            "name": each,
            "summary": _first_line(factory),
            "needs": list(rule.needs) if rule else None,
            "inductive": rule.inductive if rule else None,
            "options": options,
        }

    rows = [row(each) for each in ([name] if name else FUSIONS)]
    if json:
        typer.echo(json_module.dumps(rows, indent=1))
    elif name:
        kind = {True: "inductive", False: "transductive", None: ""}[rows[0]["inductive"]]
        facts = {"reads": ", ".join(rows[0]["needs"] or ()), "kind": kind}
        _details(rows[0], facts, f"--fusion {name}:KEY=VALUE,KEY=VALUE")
    else:
        _list(("name", "summary"), [[r["name"], r["summary"]] for r in rows])


def datasets(data_root: RootOption = None, json: JsonOption = False) -> None:
    """List the data sets and whether they are at hand. `fedshot data` verifies and downloads them.

    `NAME:images=5000` is a part of one, for quick trials; `synthetic:images=5000,size=32` is made to measure.
    """
    from dataclasses import asdict

    from fedshot.data.inventory import inventory

    entries = inventory(data_root)
    if json:
        typer.echo(json_module.dumps([asdict(entry) for entry in entries], indent=1, default=str))
        return
    rows = [[entry.name, entry.state, str(entry.classes or "as found"), entry.size, entry.where] for entry in entries]
    _list(("name", "state", "classes", "images", "folder"), rows)


def _first_line(factory: Callable[..., Any]) -> str:
    return (inspect.getdoc(factory) or "").partition("\n")[0]


def _options(factory: Callable[..., Any]) -> list[Row]:
    from fedshot.options import options_of

    return [
        {
            "key": option.key,
            "allowed": option.allowed,
            "default": None if option.required else option.default,
            "required": option.required,
        }
        for option in options_of(factory).values()
    ]


def _list(columns: tuple[str, ...], rows: list[list[str]]) -> None:
    from rich.console import Console

    Console().print(_table(columns, rows))


def _details(row: Row, facts: Mapping[str, str], how: str) -> None:
    from rich.console import Console

    console = Console()
    console.print(row["name"], style="bold", markup=False)
    if row["summary"]:
        console.print(row["summary"], markup=False, highlight=False)
    console.print("  ".join(f"{key}: {value}" for key, value in facts.items() if value), style="dim", markup=False)
    if not row["options"]:
        console.print("\nno options")
        return
    console.print(f"\noptions: {how}", markup=False, highlight=False)
    cells = [[o["key"], "required" if o["required"] else _text(o["default"]), o["allowed"]] for o in row["options"]]
    console.print(_table(("key", "default", "allowed"), cells))
    if any("." in option["key"] for option in row["options"]):
        console.print("\nThe last part of a dotted key is enough where it is unambiguous.", style="dim")


def _table(columns: tuple[str, ...], rows: list[list[str]]) -> "Table":
    """Aligned columns, of which only the last may wrap. Text is shown as it is: brackets are formulas, not markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=column != columns[-1], overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _text(value: Any) -> str:
    return "none" if value is None else str(value)
