"""Every method end to end, twice; their names, options and controls; and that none of them brings a loop of its own."""

import ast
import math
from collections.abc import Callable
from inspect import getsourcefile, signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedshot.errors import UserError
from fedshot.experiment import run
from fedshot.local.objective import Step
from fedshot.method import Method
from fedshot.methods import ALIASES, METHODS, canonical, factory_of, parse_reference
from fedshot.methods.aligned import Alignment
from fedshot.options import bind, options_of
from fedshot.prepare import prepare
from fedshot.spec import Spec
from fedshot.upload import parse

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_gives_the_same_record_twice(name: str, quick: Quick, finished: FinishedRun, tmp_path: Path) -> None:
    first = finished(quick(name))
    second = run(quick(name), tmp_path / "again")
    assert first.record.result_sha256 == second.result_sha256
    assert first.uploads == [client.upload_sha256 for client in second.clients]
    assert None not in first.uploads and len(set(first.uploads)) == 3
    assert second.spec.method == name
    for value in (second.final.accuracy, second.final.balanced_accuracy, second.final.oracle_routing):
        assert 0 <= value <= 1
    assert math.isfinite(second.final.nll)
    assert second.final.phases == factory_of(name)().phases


def test_methods_differ_in_what_they_train(quick: Quick, finished: FinishedRun) -> None:
    # the same clients, fused in other ways
    alike = [["fedavg", "ensemble", "fedproto", "otfusion"], ["fafi", "dynamic_prototypes"]]
    trained = {name: parse(finished(quick(name)).folder.upload(0).read_bytes()).sha256 for name in METHODS}
    assert [len({trained[name] for name in group}) for group in alike] == [1] * len(alike)
    assert len(set(trained.values())) == len(METHODS) - sum(len(group) - 1 for group in alike)


def test_training_beats_guessing(quick: Quick, finished: FinishedRun) -> None:
    # three clients with 17 to 40 images and two epochs: guessing gives a tenth
    record = run(quick("fafi", epochs=8))
    assert record.final.accuracy > 0.3
    assert record.final.nll < finished(quick("fafi")).record.final.nll


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_an_alias_is_its_method(alias: str, name: str, quick: Quick) -> None:
    assert name in METHODS
    assert canonical(alias) == canonical(alias.lower()) == canonical(name.upper()) == name
    assert parse_reference(f"{alias}:weight=0") == (name, {"weight": "0"})
    assert factory_of(alias) is METHODS[name]
    setting = prepare(quick(alias))
    assert setting.spec.method == setting.method.name == name  # a record names the method, whatever was typed


def test_dashes_may_be_typed_and_mistakes_are_pointed_at() -> None:
    assert canonical("etf-decoupled") == "etf_decoupled"
    with pytest.raises(UserError, match="did you mean 'aurora'"):
        canonical("auroar")


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_of_a_method_is_an_option(name: str) -> None:
    options = options_of(METHODS[name])
    assert {key.partition(".")[0] for key in options} == set(signature(METHODS[name]).parameters)
    assert all(option.allowed for option in options.values())
    defaults = {key: option.default for key, option in options.items()}
    made = bind(METHODS[name], {key: value for key, value in defaults.items() if value is not None}, name)
    assert isinstance(made, Method) and made.name == name
    assert METHODS[name].__doc__


@pytest.mark.parametrize("name", METHODS)
def test_no_option_has_the_name_of_a_setting_of_the_run(name: str) -> None:
    assert not options_of(METHODS[name]).keys() & Spec.model_fields.keys()


@pytest.mark.parametrize("name", METHODS)
def test_no_method_brings_a_loop_of_its_own(name: str) -> None:
    file = Path(getsourcefile(METHODS[name]) or "")
    tree = ast.parse(file.read_text())
    nodes = list(ast.walk(tree))
    called = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not called & {"backward", "zero_grad", "optim", "parameters"}
    assert not imported & {"fedshot.local.train", "fedshot.local.optimise", "torch.optim"}
    assert not any(isinstance(node, (ast.For, ast.While)) for node in nodes)
    assert not any(isinstance(node, ast.ClassDef) and node.bases for node in nodes)
    assert len(file.read_text().splitlines()) <= 60


CONTROLS: dict[str, dict[str, Any]] = {
    "random": {"anchors": "random"},
    "zero": {"anchors": "zero"},
    "longer": {"anchors": "etf_scaled"},
    "longer, random": {"anchors": "random_scaled"},
    "present classes": {"measure": "present"},
    "direction": {"measure": "cosine"},
    "features": {"measure": "features"},
    "direction of features": {"measure": "features_cosine"},
    "direction of long anchors": {"anchors": "etf_scaled", "measure": "cosine"},
}


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_of_the_anchors_is_another_run(control: str, quick: Quick, finished: FinishedRun) -> None:
    plain, changed = finished(quick("etf")), finished(quick("etf", CONTROLS[control]))
    assert all(a != b for a, b in zip(plain.uploads, changed.uploads, strict=True))
    assert 0 <= changed.record.final.accuracy <= 1
    assert all(row["align_loss"] > 0 for row in changed.rows(0))


def test_direction_does_not_ask_for_the_length_of_an_anchor(quick: Quick, finished: FinishedRun) -> None:
    short = finished(quick("etf", {"measure": "cosine"})).rows(0)[0]
    long = finished(quick("etf", CONTROLS["direction of long anchors"])).rows(0)[0]
    assert short["align_loss"] == pytest.approx(long["align_loss"], rel=1e-5)


def test_features_that_are_drawn_come_nearer_and_prototypes_feel_nothing_of_it(quick: Quick) -> None:
    client = prepare(quick("etf")).client(0)
    width, labels = client.model.encoder.width, client.train.labels[:8]
    anchors = Alignment().targets(client)
    features = torch.randn(8, width, generator=torch.Generator().manual_seed(1), requires_grad=True)
    step = Step.of(client.model, features, labels, 1, torch.tensor(0.0))
    square, direction = (
        Alignment(measure=m).term(lambda _: anchors).value(step) for m in ("features", "features_cosine")
    )
    by_hand = sum(((f / f.norm() - anchors[y]) ** 2).sum() for f, y in zip(features, labels, strict=True)) / (8 * width)
    torch.testing.assert_close(square, by_hand)
    torch.testing.assert_close(square, 2 * direction / width)  # both are unit
    direction.backward()
    assert features.grad is not None and features.grad.abs().sum() > 0
    assert all(p.grad is None for p in client.model.head.parameters())


def test_semantic_anchors_come_from_a_file(quick: Quick, finished: FinishedRun, tmp_path: Path) -> None:
    vectors = np.random.default_rng(1).normal(size=(10, 7))
    np.save(tmp_path / "vectors.npy", vectors)
    spec = quick("etf", {"anchors": "semantic", "file": str(tmp_path / "vectors.npy")})
    record = run(spec)
    assert record.clients[0].upload_sha256 not in finished(quick("etf")).uploads
    assert record.spec.options["alignment.file"] == str(tmp_path / "vectors.npy")


def test_semantic_anchors_without_a_file_stop_before_training(quick: Quick) -> None:
    with pytest.raises(UserError, match="need a file"):
        run(quick("etf", {"anchors": "semantic"}))


def test_contrast_of_align_uniform_starts_after_its_warmup(quick: Quick, finished: FinishedRun) -> None:
    first, second = finished(quick("align_uniform", {"warmup_epochs": 1})).rows(0)
    assert first["lambda_effective"] == 0.0 and first["lambda_equilibrium"] is None
    assert second["lambda_effective"] == second["lambda_raw"] > 0


def test_the_first_form_of_uncertainty_cuts_the_learning_rate(quick: Quick, finished: FinishedRun) -> None:
    first = finished(quick("etf_uncertainty", {"form": "first"})).rows(0)[0]
    rescaled = finished(quick("etf_uncertainty")).rows(0)[0]
    assert first["base_scale"] == pytest.approx(0.5, rel=0.1)
    assert rescaled["base_scale"] == pytest.approx(1.0, rel=1e-6)


OWN = """
from fedshot.method import Method
from fedshot.methods.etf import etf


def {name}(strength: float = 2.0) -> Method:
    return etf(weight=strength)
"""


def test_a_file_of_your_own_is_a_method(quick: Quick, finished: FinishedRun, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN.format(name="mine") + OWN.format(name="other"))
    with pytest.raises(UserError, match="must define one function"):
        factory_of(str(tmp_path / "mine.py"))
    with pytest.raises(UserError, match="unknown method in"):
        factory_of(f"{tmp_path / 'mine.py'}:nobody")
    record = run(quick(f"{tmp_path / 'mine.py'}:other", {"strength": 5.0}))
    assert [client.upload_sha256 for client in record.clients] == finished(quick("etf")).uploads
