"""The studies that come with the package, and other values for a study's settings."""

from pathlib import Path

import pytest

from fedshot.errors import UserError
from fedshot.methods import METHODS, parse_reference
from fedshot.options import resolve
from fedshot.study.grid import Study
from fedshot.study.recipe import read_recipe
from fedshot.study.recipes import PLANNED, RECIPES


def test_the_notes_plan_has_every_mechanism_and_its_parent() -> None:
    recipe = read_recipe("notes-plan")
    assert recipe.name == "notes-plan" and recipe.definition["against"] == "fafi"
    assert len(recipe.cells) == 3 * (1 + len(PLANNED))
    planned = {parse_reference(text)[0] for text in PLANNED}
    after, before = list(METHODS).index("raw_supcon"), list(METHODS).index("recommended")
    assert planned == set(list(METHODS)[after + 1 : before])
    for text in PLANNED:
        name, options = parse_reference(text)
        assert resolve(METHODS[name], options, name) is not None  # raises for an option that does not exist
    specs = [cell.spec() for cell in recipe.cells]
    assert {(spec.public, spec.validation, spec.data, spec.alpha) for spec in specs} == {("0.1", 0.1, "digits", 0.05)}


def test_what_is_set_is_read_as_the_file_of_a_study_has_it() -> None:
    changed = read_recipe("notes-plan", {"seeds": "1-3", "fusion": "null,'features',logits:weights=uniform"})
    specs = [cell.spec() for cell in changed.cells]
    assert {spec.seed for spec in specs} == {1, 2, 3}
    assert {spec.fusion for spec in specs} == {None, "features", "logits:weights=uniform"}


def test_settings_methods_and_seeds_can_be_changed() -> None:
    changed = read_recipe("notes-plan", {"data": "mnist", "alpha": "0.1,0.5", "seeds": "7", "methods": "fafi,etf"})
    specs = [cell.spec() for cell in changed.cells]
    assert {(s.method, s.data, s.alpha, s.seed) for s in specs} == {
        (method, "mnist", alpha, 7) for method in ("fafi", "etf") for alpha in (0.1, 0.5)
    }
    assert {s.public for s in specs} == {"0.1"}  # what is not named stays
    assert {cell.spec().public for cell in read_recipe("notes-plan", {"public": "0.2"}).cells} == {"0.2"}
    asked = read_recipe("notes-plan", {"methods": "fafi", "fusion": "logits:weights=uniform,temperature=2,features"})
    assert {cell.spec().fusion for cell in asked.cells} == {"logits:weights=uniform,temperature=2", "features"}
    assert read_recipe("notes-plan", {"methods": "etf"}).definition["against"] is None
    assert changed.definition["against"] == "fafi"


def test_a_study_is_compared_with_one_of_its_methods() -> None:
    with pytest.raises(ValueError, match="against: V4 is none of the methods: fafi, etf"):
        Study.model_validate({"methods": ["fafi", "etf"], "against": "V4"})


def test_a_change_of_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'epochs'"):
        read_recipe("notes-plan", {"epoch": "3"})
    with pytest.raises(UserError, match="write values with commas"):
        read_recipe("notes-plan", {"data": "[a"})
    with pytest.raises(UserError, match="--set seeds 'many'"):
        read_recipe("notes-plan", {"seeds": "many"})
    with pytest.raises(UserError, match="--set lr= leaves no run"):
        read_recipe("notes-plan", {"lr": ""})
    rules = {cell.spec().fusion for cell in read_recipe("notes-plan", {"fusion": "none,logits"}).cells}
    assert rules == {None, "logits"}
    (tmp_path / "specs.py").write_text(
        "from fedshot.spec import make_spec\n\n\ndef one():\n    return [make_spec(method='fafi')]\n"
    )
    with pytest.raises(UserError, match="finished specs"):
        read_recipe(str(tmp_path / "specs.py"), {"seeds": "3"})


def test_every_recipe_of_the_package_can_be_read() -> None:
    assert all(read_recipe(name).cells for name in RECIPES)
