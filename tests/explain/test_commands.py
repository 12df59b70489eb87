"""The commands that findings print: read by the command line as they stand, and asking for what they are to ask."""

import shlex
from typing import Any

import pytest

from fedshot.explain.commands import again
from fedshot.methods import METHODS
from fedshot.options import options_of
from fedshot.prepare import prepare
from fedshot.spec import Spec, make_spec


def asked_by(command: str) -> Spec:
    """The spec that is typed, for words of `fedshot run` that are all options of that name, or --set."""
    fedshot, run, method, *words = shlex.split(command.strip("`"))
    assert (fedshot, run) == ("fedshot", "run")
    typed = dict(
        value.split("=", 1) if name == "--set" else (name.removeprefix("--").replace("-", "_"), value)
        for name, value in zip(words[::2], words[1::2], strict=True)
    )
    settings: dict[str, Any] = {key: value for key, value in typed.items() if key in Spec.model_fields}
    return make_spec(method=method, options={k: v for k, v in typed.items() if k not in settings}, **settings)


@pytest.mark.parametrize(
    ("method", "options", "fusion"),
    [
        ("distilled", {"images": "noise", "count": 50}, "features"),
        ("recommended", {"sharpness": 1.0}, "logits"),
        ("recommended", {"sharpness": 1.0}, "routed"),
        ("etf", {"weight": 2.0}, "class_weighted"),
    ],
)
def test_another_rule_is_asked_for_without_what_only_the_method_s_own_reads(
    method: str, options: dict[str, Any], fusion: str
) -> None:
    complete = prepare(make_spec(method=method, options=options, epochs=1, validation=0.1)).spec
    typed = asked_by(again(complete, {"fusion": fusion}))
    assert typed.fusion in (fusion, None)
    found = prepare(typed).spec
    own = METHODS[method]().of_rule if METHODS[method]().fusion.name != fusion else ()
    usual = {key: option.default for key, option in options_of(METHODS[method]).items()}
    assert found.options == {**complete.options, **{key: usual[key] for key in own}}
    assert (found.fusion, found.validation) == (fusion, 0.1)
