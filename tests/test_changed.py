"""What must be typed to get a run again: what its method, its data set and the defaults would not give it."""

import shlex

import pytest

from fedshot.changed import changed_options, changed_settings, variant
from fedshot.explain.commands import again
from fedshot.methods import parse_reference
from fedshot.prepare import prepare
from fedshot.spec import Spec, make_spec


def complete(method: str, **given: object) -> Spec:
    return prepare(make_spec(method=method, data="digits:images=300", **given)).spec


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("fafi", {"lr": 0.1, "fusion": "logits", "augmentation": "natural"}),
        ("recommended", {}),
        ("recommended", {"lr": 0.05, "schedule": "constant"}),  # the defaults, which the method does not take
        ("recommended", {"weight_decay": 0, "upload_precision": "fp32", "validation": 0.1, "fusion": "common"}),
        ("recommended", {"validation": 0.1, "validation_most": 256}),
        ("recommended", {"validation": 0.2, "validation_most": 256}),
        ("recommended", {"validation": 0, "fusion": "features"}),
        ("recommended", {"validation": 0.1}),
        ("distilled", {"options": {"temperature": 2.0}, "public": "0.2"}),
        ("aurora", {"recipe": "iid", "clip_scope": "joint", "options": {"hinge.cap": 7.0}}),
    ],
)
def test_what_was_changed_gives_the_run_again(method: str, given: dict) -> None:
    spec = complete(method, **given)
    typed = {"method": method, "options": changed_options(method, spec.options), **changed_settings(spec)}
    assert prepare(make_spec(**typed)).spec == spec
    assert changed_options(method, spec.options) == given.get("options", {})


def test_a_method_whose_options_hold_a_rule_with_options_is_typed_as_it_is_told() -> None:
    told = variant("distilled", {"teacher": "features:weights=uniform;scale=unit", "images": "noise"})
    assert parse_reference(told) == (
        "distilled",
        {"teacher": "features:weights=uniform;scale=unit", "images": "noise"},
    )


def test_only_what_was_changed_is_told() -> None:
    assert changed_settings(complete("recommended")).keys() == {"data", "encoder", "batch_size"}
    assert changed_settings(complete("recommended", lr=0.05))["lr"] == 0.05


def test_another_method_in_its_place_has_the_same_settings() -> None:
    for one, other in (("recommended", "fafi"), ("fafi", "recommended")):
        spec = complete(one, validation=0.1)
        words = shlex.split(again(spec, {"method": other}).strip("`"))
        assert words[:3] == ["fedshot", "run", other]
        replaced = prepare(make_spec(method=other, **changed_settings(spec.model_copy(update={"fusion": None}), other)))
        for name in ("lr", "schedule", "weight_decay", "validation", "validation_most", "upload_precision"):
            assert getattr(replaced.spec, name) == getattr(spec, name), name
        assert f"lr={spec.lr}" in words
