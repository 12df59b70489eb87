"""The documentation says what the code does: pages, options, defaults, links, commands, the tutorial."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from fedshot.cli import app, main
from fedshot.cli.settings import build_spec
from fedshot.data import DATASETS
from fedshot.evaluate import Metrics
from fedshot.fusion import FUSIONS, make_fusion
from fedshot.local.weighting import WeightReport
from fedshot.methods import ALIASES, METHODS, factory_of
from fedshot.options import Option, options_of, parse_integers, resolve
from fedshot.partition import RECIPES
from fedshot.record import ClientRecord, Cost, Final, Record
from fedshot.spec import Spec
from fedshot.upload import SECTIONS, Header

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
VARIANT = ROOT / "examples" / "logit_adjusted.py"
RULE = ROOT / "examples" / "confident_vote.py"
UNMEASURED = "not measured yet"
SECTIONS_OF_A_METHOD = (
    "Formula",
    "Upload and fusion",
    "Command",
    "Options",
    "Our number",
    "Published",
    "What differs from the published code, and why",
)


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def headings(text: str) -> list[str]:
    outside = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    return re.findall(r"^#{1,6} +(.+?) *$", outside, flags=re.M)


def anchor(heading: str) -> str:
    """The name that GitHub gives a heading: lower case, punctuation dropped, spaces as hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def section(text: str, heading: str) -> str:
    """What stands below a heading of the second level."""
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def table_cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


def between(text: str, opening: str, closing: str) -> str:
    found = re.findall(f"<!-- {re.escape(opening)} -->(.*?)<!-- {re.escape(closing)} -->", text, flags=re.S)
    assert len(found) == 1, f"{opening}: {len(found)} pairs of markers"
    return found[0].strip()


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_page_with_all_sections(name: str) -> None:
    text = text_of(f"methods/{name}.md")
    aliases = [alias for alias, method in ALIASES.items() if method == name]
    title, *rest = headings(text)
    assert title == (f"{name} ({', '.join(aliases)})" if aliases else name)
    assert [heading for heading in rest if heading in SECTIONS_OF_A_METHOD] == list(SECTIONS_OF_A_METHOD)
    assert all(section(text, heading).strip() for heading in SECTIONS_OF_A_METHOD)
    assert f"\nfedshot run {name}\n" in section(text, "Command")
    assert f"[`{factory_of(name)().fusion.name}`](../fusion.md#" in section(text, "Upload and fusion")
    if any(option.startswith(("alignment", "sigma")) for option in options_of(METHODS[name])):
        assert "What goes wrong, and what to look at" in rest


@pytest.mark.parametrize("name", METHODS)
def test_a_method_page_lists_its_options_with_their_defaults(name: str) -> None:
    rows = table_cells(section(text_of(f"methods/{name}.md"), "Options"))[2:]
    said = [(key.strip("`"), default.strip("`")) for key, default, _ in rows]
    assert said == [(option.key, in_words(option)) for option in options_of(METHODS[name]).values()]


def in_words(option: Option) -> str:
    return "none" if option.default is None else str(option.default)


@pytest.mark.parametrize("name", METHODS)
def test_the_number_of_a_method_is_one_line(name: str) -> None:
    number = between(text_of(f"methods/{name}.md"), f"number:{name}", "/number")
    assert number and "\n" not in number


def test_the_index_of_methods_has_a_row_for_each() -> None:
    rows = table_cells(text_of("methods/README.md"))[2:]
    fusions = {name: factory_of(name)().fusion.name for name in METHODS}
    assert [row[0] for row in rows] == [f"[{name}]({name}.md)" for name in METHODS]
    assert [row[3] for row in rows] == [f"[`{rule}`](../fusion.md#{rule})" for rule in fusions.values()]


def test_the_results_have_a_row_for_every_method() -> None:
    table = between(text_of("results.md"), "results:digits", "/results:digits")
    if table == UNMEASURED:
        pytest.skip("the table of results has not been measured yet")
    first = " ".join(row[0] for row in table_cells(table)[2:])
    assert [name for name in METHODS if not re.search(rf"\b{name}\b", first)] == []


@pytest.mark.parametrize("name", FUSIONS)
def test_every_fusion_rule_is_explained_with_its_needs_and_options(name: str) -> None:
    text, rule = text_of("fusion.md"), FUSIONS[name]()
    assert name in headings(text)
    row = next(row for row in table_cells(text) if row[0] == f"[`{name}`](#{name})")
    assert row[1] == ", ".join(rule.needs)
    assert row[2] == (", ".join(options_of(FUSIONS[name])) or "–")
    assert ("transductive" in row[4]) is not rule.inductive
    below = section(text, name)
    assert f"--fusion {name}" in below
    for key, option in options_of(FUSIONS[name]).items():
        default = f"{option.default:g}" if isinstance(option.default, int | float) else str(option.default).lower()
        assert f"`{key}` = `{default}`" in below


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("partition.md", list(RECIPES)),
        ("data.md", [name for name in DATASETS if name != "folder"]),
        ("upload.md", [*SECTIONS, *Header.model_fields]),
        ("record.md", [*Spec.model_fields, "loss_NAME", *WeightReport.__dataclass_fields__]),
    ],
)
def test_every_name_stands_in_its_page(page: str, names: list[str]) -> None:
    text = text_of(page)
    assert [name for name in names if f"`{name}`" not in text] == []


def test_the_record_page_has_every_key() -> None:
    text = text_of("record.md")
    keys = [f"final.{key}" for key in (*Metrics.model_fields, *Final.model_fields)]
    keys += [f"cost.{key}" for key in Cost.model_fields] + [f"clients[].{key}" for key in ClientRecord.model_fields]
    keys += [key for key in Record.model_fields if key not in ("partition", "clients", "curve", "final", "cost")]
    assert [key for key in keys if f"`{key}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_relative_links_resolve(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if fragment:
            names = [anchor(heading) for heading in headings(linked.read_text(encoding="utf-8"))]
            assert fragment in names, target


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, left = set[Path](), [DOCS / "README.md"]
    while left:
        page = left.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        targets = re.findall(r"\]\(([^)\s#]+)", page.read_text(encoding="utf-8"))
        left += [(page.parent / target).resolve() for target in targets if not re.match(r"[a-z]+:", target)]
    assert sorted(set(PAGES) - reached) == []


def commands() -> Iterator[Any]:
    """Every `fedshot …` line of a shell block, and every one in the text that is no pattern, with its page."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.S | re.M)
        lines = [line for block in blocks for line in block.splitlines() if line.startswith("fedshot ")]
        lines += [said for said in re.findall(r"`(fedshot [a-z][^`\n]+)`", text) if not re.search(r"[A-Z]{2}|…", said)]
        for line in dict.fromkeys(lines):
            yield pytest.param(line, id=f"{page.relative_to(DOCS)}: {line}")


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """A command line through typer's own parser, without running the command."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("fedshot", list(words), resilient_parsing=False)
    name = ""
    while hasattr(command, "commands"):
        name, command, words = command.resolve_command(context, words)
        context = command.make_context(name, list(words), parent=context)
    return name, context.params


@pytest.mark.parametrize("line", [*commands()])
def test_every_command_parses(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    name, given = parsed(shlex.split(line)[1:])
    fields = {key: value for key, value in given.items() if key in Spec.model_fields and key != "method"}
    if name in ("run", "compare"):
        fields.pop("evaluate_at", None)
        for reference in given.get("methods") or [given["method"]]:
            spec = build_spec(reference, fields, given["set"], given.get("evaluate_at"))
            resolve(factory_of(spec.method), spec.options, reference)
        parse_integers(str(given.get("seeds", "1")), "--seeds")
    rules = given.get("fusion") or []
    for rule in [rules] if isinstance(rules, str) else rules:
        make_fusion(rule)
    if name == "methods" and given["name"]:
        factory_of(given["name"])
    if name == "fusions" and given["name"]:
        make_fusion(given["name"])


@pytest.mark.parametrize("name", [*METHODS, "shared"])
def test_settings_in_the_text_of_a_method_page_exist(name: str) -> None:
    method = "etf" if name == "shared" else name
    for typed in re.findall(r"`(--set [^`]*=[^`]+)`", text_of(f"methods/{name}.md")):
        spec = build_spec(method, {}, [word for word in shlex.split(typed) if word != "--set"], None)
        resolve(factory_of(method), spec.options, method)


@pytest.mark.parametrize("page", ["partition.md"])
def test_python_examples_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", text_of(page), flags=re.S | re.M)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})
    assert "ec27a7247416" in capsys.readouterr().out


def test_the_promises_name_the_tests_that_guard_them() -> None:
    rows = table_cells(text_of("soundness.md"))[2:]
    guards = (ROOT / "tests" / "test_soundness.py").read_text(encoding="utf-8")
    there = set(re.findall(r"^def (test_\w+)", guards, flags=re.M))
    assert [row[0] for row in rows] == [str(number) for number in range(1, 12)]
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row[3])
        assert named and all(name.startswith(f"test_{int(row[0]):02d}_") for name in named)
        assert [name for name in named if name not in there] == []


def cli(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(words)
    return int(end.value.code or 0)


def test_the_tutorial_shows_its_files_in_full() -> None:
    for file in (VARIANT, RULE):
        assert f"```python\n{file.read_text(encoding='utf-8')}```" in text_of("tutorial.md")
    assert len(VARIANT.read_text(encoding="utf-8").splitlines()) <= 40


def test_the_variant_of_the_tutorial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its option at 0 it is its parent, bit for bit; its fusion rule works on the uploads that the run left."""
    (tmp_path / "examples").mkdir()
    for file in (VARIANT, RULE):
        (tmp_path / "examples" / file.name).write_bytes(file.read_bytes())
    monkeypatch.chdir(tmp_path)
    quick = ("--epochs", "1", "--clients", "2", "--json", "--workers", "1")
    records = []
    for method, *more in (
        ["examples/logit_adjusted.py", "--out", "runs/mine"],
        ["examples/logit_adjusted.py", "--set", "strength=0"],
        ["fafi"],
    ):
        assert cli("run", method, *quick, *more) == 0
        records.append(json.loads(capsys.readouterr().out))
    mine, neutral, parent = ([c["upload_sha256"] for c in record["clients"]] for record in records)
    assert records[0]["final"]["accuracy"] > 0.2
    assert neutral == parent and not set(mine) & set(parent)
    rule = f"examples/{RULE.name}"
    assert cli("fuse", "runs/mine", "-f", "class_weighted", "-f", rule, "-f", f"{rule}:sharpness=0", "--json") == 0
    rows = {row["fusion"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows[f"{rule}:sharpness=0"]["confusion"] == rows["class_weighted"]["confusion"]  # its neutral value
    assert rows[rule]["nll"] != pytest.approx(rows["class_weighted"]["nll"], rel=1e-3)
