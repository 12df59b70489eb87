"""A study as a value, from YAML, from Python; what is wrong with it is told with its place."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from fedshot.errors import UserError
from fedshot.spec import make_spec
from fedshot.study import Study
from fedshot.study.grid import cells_of
from fedshot.study.recipe import read_recipe


def study(**given: object) -> Study:
    return Study.model_validate(given)


def test_every_combination_is_a_cell_and_seeds_change_fastest() -> None:
    cells = study(methods=["fafi", "etf"], alpha=[0.1, 1.0], epochs=2, seeds=[1, 2]).cells()
    assert len(cells) == 8
    assert [cell.at["seed"] for cell in cells[:2]] == [1, 2]
    assert dict(cells[0].at) == {"method": "fafi", "alpha": 0.1, "epochs": 2, "seed": 1}
    assert cells[-1].spec() == make_spec(method="etf", alpha=1.0, epochs=2, seed=2)


def test_options_are_axes_or_stand_after_the_name() -> None:
    cells = study(methods=["etf", "V7:anchors=random"], options={"weight": [0, 0.5]}, seeds=1).cells()
    assert [cell.spec().options for cell in cells] == [
        {"weight": 0},
        {"weight": 0.5},
        {"weight": 0, "anchors": "random"},
        {"weight": 0.5, "anchors": "random"},
    ]
    with pytest.raises(UserError, match="weight is given twice"):
        study(methods=["etf:weight=1"], options={"weight": 0}).cells()[0].spec()


def test_combinations_are_left_out_and_added() -> None:
    found = study(
        methods=["etf"],
        alpha=[0.1, 1.0],
        seeds=[1, 2],
        options={"weight": 0.5},
        exclude=[{"alpha": 1.0, "seed": [2, 3]}],
        include=[{"method": "fafi", "alpha": 0.1}, {"method": "etf", "alpha": 9.0, "option.weight": 2, "seed": 7}],
    ).cells()
    assert [(c.at["method"], c.at["alpha"], c.at["seed"], c.at.get("option.weight")) for c in found] == [
        ("etf", 0.1, 1, 0.5),
        ("etf", 0.1, 2, 0.5),
        ("etf", 1.0, 1, 0.5),
        ("fafi", 0.1, 1, None),  # options of the study belong to the methods of the study
        ("fafi", 0.1, 2, None),
        ("etf", 9.0, 7, 2),
    ]


def test_evaluation_points_are_one_value() -> None:
    assert study(methods=["etf"], epochs=3, evaluate_at=[1, 2], seeds=[1]).cells()[0].spec().evaluate_at == (1, 2)
    assert len(study(methods=["etf"], epochs=3, evaluate_at=[[1], [1, 2]], seeds=[1]).cells()) == 2


def test_a_cell_that_is_asked_for_twice_is_one() -> None:
    assert len(study(methods=["etf", "etf"], seeds=[1, 1]).cells()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("methods: [fafi]\nalhpa: 0.1", "unknown key of a study 'alhpa': did you mean 'alpha'?"),
        ("method: fafi", "did you mean 'methods'?"),
        ("alpha: 0.1", "methods: Field required"),
        ("methods: []", "an empty list leaves no run"),
        ("methods: fafi\nrecipe: iid\nalpha: [0.1, 0.5]", "alpha = 0.1 and 0.5 would be the same run, since rec"),
        ("methods: fafi\nrecipe: iid\ninclude: [{alpha: 0.1}]", "alpha = 0.05 and 0.1 would be the same run"),
        (
            "methods: fafi\nrecipe: iid\ninclude: [{alpha: }]",
            "two runs would be the same run, since recipe iid",
        ),
        ("methods: fafi\nclasses_per_client: [1, 2]", "since recipe dirichlet does not read it"),
        ("methods: [fafi]\nseeds: [1, x]", "seeds = 'x': it should be a valid integer"),
        ("methods: [fafi]\nseeds: [-1]", "seeds = -1: it should be greater than or equal to 0"),
        ("methods: [fafi]\nalpha: {a: 1}", "alpha: it should be a value or a list of values"),
        ("methods: [fafi]\nexclude: [{alpha: 1}]", "exclude[0]: unknown axis 'alpha'"),
        (
            "methods: [fafi]\nalpha: [1, 2]\nexclude: [{alpha: 3}]",
            "exclude[0] leaves nothing out: no run has alpha",
        ),
        ("methods: [fafi]\nexclude: {alpha: 1}", "it should be a list of combinations"),
        ("methods: [fafi]\nexclude: [{method: fafi}]", "exclude leaves no run"),
        ("methods: [fafi]\nalpha: 1\nalpha: 2", "alpha stands twice"),
        ("methods: [fafi", "is no YAML"),
        ("- fafi", "a study is a mapping"),
        ("methods: [fafi]\nalpha: 1\nsettings: {alpha: 2}", "alpha is given twice: at the top and in settings"),
        ("methods: [fafi]\nsettings: {alhpa: 2}", "did you mean 'alpha'?"),
        ("methods: [fafi]\nname: a/b", "name = 'a/b'"),
    ],
)
def test_mistakes_in_a_file_are_told_with_their_place(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as error:
        read_recipe(str(file))
    assert said in str(error.value) and str(file) in str(error.value)


RECIPE = """
from fedshot.study import Study
from fedshot.spec import make_spec

def grid():
    return Study(name="mine", methods=("fafi",), seeds=(1, 2), settings={"alpha": (0.1,)})

def _part(seed):
    return make_spec(method="etf", options={"weight": 0.5}, seed=seed)

def specs():
    return (_part(seed) for seed in (1, 2))

def nothing():
    return 3
"""


def test_a_recipe_is_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my_recipes.py"
    file.write_text(RECIPE)
    assert (found := read_recipe(f"{file}:grid")).name == "mine" and len(found.cells) == 2
    specs = read_recipe(f"{file}:specs")
    assert [(c.at["method"], c.at["seed"]) for c in specs.cells] == [("etf:weight=0.5", 1), ("etf:weight=0.5", 2)]
    assert specs.cells[0].spec().options == {"weight": 0.5}
    monkeypatch.syspath_prepend(tmp_path)
    assert read_recipe("my_recipes:grid").cells == found.cells
    for wrong, said in {
        f"{file}:gird": "did you mean 'grid'",
        str(file): "or name one as",
        f"{file}:nothing": "must return a Study or some Specs, not 3",
        "no_such_module:grid": "there is no study 'no_such_module:grid'",
        "skew": "write notes-plan, FILE.yaml",
        str(tmp_path / "absent.py"): "there is no file",
        str(tmp_path / "absent.yaml"): "cannot be read",
    }.items():
        with pytest.raises(UserError, match=said):
            read_recipe(wrong)


def test_specs_keep_all_their_settings_as_cells() -> None:
    spec = make_spec(method="fafi", epochs=3, evaluate_at=(1,), encoder="cnn", seed=4)
    assert cells_of([spec])[0].spec() == spec


def test_recipes_that_read_different_settings_go_together_if_no_run_is_asked_for_twice() -> None:
    given = {"methods": "fafi", "recipe": ["iid", "dirichlet"], "alpha": [0.1, 0.5], "seeds": "1-2"}
    with pytest.raises(ValidationError, match="since recipe iid does not read it: leave one out"):
        Study.model_validate(given)
    study = Study.model_validate({**given, "exclude": [{"recipe": "iid", "alpha": 0.5}]})
    assert len(study.cells()) == 6 and study.seeds == (1, 2)
