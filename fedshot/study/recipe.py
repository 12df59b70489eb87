"""Where a study comes from: a YAML file, or a Python function that returns a Study or specs."""

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from fedshot.errors import UserError, unknown
from fedshot.options import parse_integers
from fedshot.spec import Spec, first_problem
from fedshot.study.grid import SETTINGS, Cell, Study, cells_of
from fedshot.study.recipes import RECIPES
from fedshot.user_file import function_in


@dataclass(frozen=True)
class Recipe:
    """A study that has been read: its name, its cells, and its definition as plain values."""

    name: str
    cells: Sequence[Cell]
    definition: dict[str, Any]


def read_recipe(source: str, changes: Mapping[str, str] = MappingProxyType({})) -> Recipe:
    """A name in RECIPES, FILE.yaml, FILE.py, FILE.py:function or package.module:function.

    Args:
        changes: values as typed that take the place of the study's own; several with commas between them.
    """
    if source in RECIPES:
        return _of_study(RECIPES[source](), source, changes)
    path = Path(source.partition(".py:")[0] + ".py") if ".py:" in source else Path(source)
    if path.suffix in (".yaml", ".yml"):
        return _of_study(read_yaml(path), source, changes)
    if path.suffix == ".py":
        promise = "without parameters that returns a Study or specs"
        function = function_in(str(path), source.partition(".py:")[2], "study", promise, _takes_nothing)
    else:
        function = _named(source)
    try:
        found = function()
    except ValidationError as error:
        raise UserError(f"{source}: {first_problem(error)}") from None
    if isinstance(found, Study):
        return _of_study(found, source, changes)
    if changes:
        raise UserError(f"{source} gives finished specs: --set changes a study of methods, settings and seeds alone")
    specs = list(found) if isinstance(found, Iterable) else [found]
    if not specs or not all(isinstance(spec, Spec) for spec in specs):
        raise UserError(f"{source}: {function.__name__} must return a Study or some Specs, not {found!r}")
    definition = {"specs": [spec.model_dump(mode="json") for spec in specs]}
    return Recipe(function.__name__, cells_of(specs), definition)


def read_yaml(path: Path) -> Study:
    """The study in a file. It is named after the file if it does not name itself."""
    import yaml

    try:
        given = yaml.load(path.read_text(encoding="utf-8"), _strict_loader())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    try:
        return Study.model_validate({"name": path.stem, **given} if isinstance(given, dict) else given)
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}") from None


def _strict_loader() -> Any:
    """YAML that refuses a key that stands twice; the usual loader keeps the last and says nothing."""
    import yaml

    class Strict(yaml.SafeLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            names = [self.construct_object(key) for key, _ in node.value]
            for (key, _), name in zip(node.value, names, strict=True):
                if names.count(name) > 1:
                    raise yaml.constructor.ConstructorError(None, None, f"{name} stands twice", key.start_mark)
            return super().construct_mapping(node, deep)

    return Strict


def _of_study(study: Study, source: str, changes: Mapping[str, str]) -> Recipe:
    study = _changed(study, changes)
    cells = study.cells()
    if not cells:
        raise UserError(f"{source}: exclude leaves no run")
    return Recipe(study.name, cells, study.model_dump(mode="json"))


def _changed(study: Study, changes: Mapping[str, str]) -> Study:
    """The study with other values for some of its settings, its methods or its seeds."""
    import yaml

    if not changes:
        return study
    kept = study.model_dump(exclude_defaults=True)
    for key, text in changes.items():
        try:
            values = _values(key, text)
        except yaml.YAMLError:
            raise UserError(f"--set {key}={text}: write values with commas between them") from None
        if not values:
            raise UserError(f"--set {key}= leaves no run: write a value, or several with commas between them")
        if key in ("methods", "seeds"):
            kept[key] = values
        elif key in SETTINGS:
            kept["settings"] = {**kept.get("settings", {}), key: values}
        else:
            raise unknown("setting of a study", key, [*SETTINGS, "methods", "seeds"])
    if "methods" in changes and kept.get("against") not in kept["methods"]:
        kept.pop("against", None)  # the study is no longer about it
    try:
        return Study.model_validate(kept)
    except ValidationError as error:
        raise UserError(f"--set: {first_problem(error)}") from None


def _values(key: str, text: str) -> list[Any]:
    """What `--set key=text` gives; as the file of a study would have it, with commas between the values."""
    import yaml

    if key == "seeds":
        return parse_integers(text, "--set seeds")
    if key not in ("methods", "fusion"):
        return yaml.safe_load(f"[{text}]")
    parts = [part if ":" in part else yaml.safe_load(part) for part in references_in(text) if part]
    return [None if key == "fusion" and part == "none" else part for part in parts]


def references_in(text: str) -> list[str]:
    """Methods or rules as typed, with commas between them; an option belongs to the one before it.

    >>> references_in("fafi,hard_negatives:beta=0,synthetic=4,etf")
    ['fafi', 'hard_negatives:beta=0,synthetic=4', 'etf']
    """
    found: list[str] = []
    for part in text.split(","):
        if found and ":" in found[-1] and "=" in part and ":" not in part:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def _takes_nothing(function: Callable[..., object]) -> bool:
    return not function.__name__.startswith("_") and not inspect.signature(function).parameters


def _named(source: str) -> Callable[[], Any]:
    module, _, name = source.partition(":")
    try:
        function = getattr(importlib.import_module(module), name) if name else None
    except (ImportError, AttributeError, ValueError):
        function = None
    if not callable(function):
        raise UserError(
            f"there is no study {source!r}: write {' or '.join(RECIPES)}, FILE.yaml, FILE.py, FILE.py:function or "
            "package.module:function"
        )
    return function
