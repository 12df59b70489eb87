"""docs/explain.md says what the code does: every finding, every threshold, an example that the code would write."""

import importlib
import pkgutil
import re
from pathlib import Path

from fedshot.explain import diagnoses
from fedshot.explain.across import ACROSS
from fedshot.explain.diagnoses import DIAGNOSES
from fedshot.explain.finding import SEVERITIES

PAGE = (Path(__file__).parents[2] / "docs" / "explain.md").read_text(encoding="utf-8")


def constants() -> dict[str, set[float]]:
    """Every named threshold of the diagnoses with the values that it has in their files."""
    found: dict[str, set[float]] = {}
    for module in pkgutil.iter_modules(diagnoses.__path__, diagnoses.__name__ + "."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if name.isupper() and not name.startswith("_") and isinstance(value, int | float):
                found.setdefault(name, set()).add(float(value))
    return found


def test_every_finding_has_a_heading() -> None:
    headings = re.findall(r"^### `(\w+)`$", PAGE, flags=re.M)
    assert headings == [*DIAGNOSES, *ACROSS]


def test_every_threshold_is_told_as_it_is() -> None:
    told: dict[str, set[float]] = {}
    for name, value in re.findall(r"`([A-Z_]+)` = ([\d.]*\d(?:e-\d+)?)", PAGE):
        told.setdefault(name, set()).add(float(value))
    assert told == constants()


def test_the_example_is_of_findings_that_exist() -> None:
    example = re.findall(r"^```text\n(.*?)^```", PAGE, flags=re.S | re.M)
    assert example
    for block in example:
        shown = re.findall(r"^ +(\w+)  (\w+)$", block, flags=re.M)
        assert shown and all(severity in SEVERITIES and name in DIAGNOSES for severity, name in shown)
