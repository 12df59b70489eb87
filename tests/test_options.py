"""Options read off a signature: what can be set, what is refused, and in which words."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from fedshot.errors import UserError
from fedshot.fusion import FUSIONS, make_fusion
from fedshot.methods import METHODS, canonical, parse_reference
from fedshot.options import bind, options_of, parse_inline, resolve


@dataclass(frozen=True)
class Hinge:
    cap: float = 50.0
    rate: float = 0.1


@dataclass(frozen=True)
class Sigma:
    rate: float = 0.5


HINGE, SIGMA = Hinge(), Sigma()


def factory(
    weight: float = 1.0,
    steps: Annotated[int, Field(ge=1)] = 3,
    anneal: Literal["linear", "cosine", "none"] = "linear",
    file: str | None = None,
    hinge: Hinge = HINGE,
    sigma: Sigma = SIGMA,
    loss: Callable[[float], float] = abs,
) -> dict[str, Any]:
    return {
        "weight": weight,
        "steps": steps,
        "anneal": anneal,
        "file": file,
        "hinge": hinge,
        "sigma": sigma,
        "loss": loss,
    }


def made(**given: Any) -> dict[str, Any]:
    return bind(factory, given, "method 'x'")


def refusal(given: dict[str, Any], of: Callable[..., object] = factory) -> str:
    with pytest.raises(UserError) as error:
        bind(of, given, "method 'x'")
    return str(error.value)


def test_every_plain_parameter_and_nested_field_is_an_option_in_the_order_of_the_signature() -> None:
    found = options_of(factory)
    assert list(found) == ["weight", "steps", "anneal", "file", "hinge.cap", "hinge.rate", "sigma.rate"]
    assert [found[key].default for key in ("weight", "hinge.cap", "sigma.rate")] == [1.0, 50.0, 0.5]
    assert found["anneal"].allowed == "linear | cosine | none"
    assert found["file"].allowed == "text or none"
    assert found["steps"].allowed == "a whole number of at least 1"


def test_values_are_converted_and_nothing_else_changes() -> None:
    assert made(weight="2", steps="7", anneal="none", file="a.csv") == {
        **made(),
        "weight": 2.0,
        "steps": 7,
        "anneal": "none",  # a word of the list, not the absence of a value
        "file": "a.csv",
    }
    assert made(file="None")["file"] is None
    assert made(cap="7")["hinge"] == Hinge(cap=7.0)
    assert made(**{"hinge.cap": 7, "hinge.rate": 1, "sigma.rate": 2})["hinge"] == Hinge(7.0, 1.0)
    assert resolve(factory, {"cap": "7"}, "x")["hinge.cap"] == 7.0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"wieght": 1}, "unknown option of method 'x' 'wieght': did you mean 'weight'?"),
        ({"hinge.kap": 1}, "did you mean 'hinge.cap'?"),
        ({"loss": 1}, "unknown option"),  # a function is no option
        ({"weight": "heavy"}, "method 'x': weight takes a number, not 'heavy'"),
        ({"weight": "nan"}, "weight takes a number, not 'nan'"),
        ({"weight": "inf"}, "weight takes a number, not 'inf'"),
        ({"weight": "none"}, "weight takes a number, not 'none'"),
        ({"steps": "2.5"}, "steps takes a whole number of at least 1, not '2.5'"),
        ({"weight": True}, "weight takes a number, not True"),  # as YAML reads yes and on
        ({"steps": 0}, "steps takes a whole number of at least 1, not 0"),
        ({"anneal": "cosin"}, "not 'cosin': did you mean 'cosine'?"),
        ({"cap": "high"}, "hinge.cap takes a number, not 'high'"),
        ({"rate": 1}, "'rate' is ambiguous: write hinge.rate or sigma.rate"),
    ],
)
def test_wrong_options_are_told_in_one_sentence(given: dict[str, Any], says: str) -> None:
    message = refusal(given)
    assert says in message
    assert "\n" not in message


def test_a_factory_without_options_and_one_with_a_required_option() -> None:
    def bare() -> int:
        return 1

    def demanding(strength: float, **rest: int) -> float:
        return strength

    assert refusal({"weight": 1}, bare) == "method 'x' has no options, but 'weight' was set"
    assert refusal({}, demanding) == "method 'x': strength has no default: give it as strength=VALUE"
    assert bind(demanding, {"strength": "3"}, "method 'x'") == 3.0
    assert list(options_of(demanding)) == ["strength"]


def test_a_parameter_without_annotation_takes_the_text_as_it_is() -> None:
    def loose(word="a"):  # type: ignore[no-untyped-def]
        return word

    assert bind(loose, {"word": "b"}, "x") == "b"
    assert options_of(loose)["word"].allowed == "anything"


@pytest.mark.parametrize(
    ("text", "says"), [("weight", "key=value, not 'weight'"), ("=3", "key=value"), ("a=1,a=2", "a is given twice")]
)
def test_inline_options_that_are_none(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        parse_inline(text, "method 'x'")


def test_inline_options_keep_equal_signs_and_drop_spaces() -> None:
    assert parse_inline(" a = 1, file=x=y,", "x") == {"a": "1", "file": "x=y"}


def test_a_method_is_named_by_name_alias_or_file_with_options() -> None:
    assert [canonical(name) for name in ("V12", "v12", "etf_decoupled", "ETF-Decoupled")] == ["etf_decoupled"] * 4
    assert parse_reference("V14:cap=3,anchors=random") == ("aurora", {"cap": "3", "anchors": "random"})
    assert parse_reference("dir/my.py") == ("dir/my.py", {})
    with pytest.raises(UserError, match="unknown method 'V99'"):
        canonical("V99")


@pytest.mark.parametrize("make", [*METHODS.values(), *FUSIONS.values()], ids=[*METHODS, *FUSIONS])
def test_every_default_passes_its_own_check(make: Callable[..., object]) -> None:
    defaults = {key: option.default for key, option in options_of(make).items()}
    assert resolve(make, defaults, "x") == defaults
    assert not any(option.required for option in options_of(make).values())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("featres", "did you mean 'features'?"),
        ("features:weigths=uniform", "did you mean 'weights'?"),
        ("features:weights=unifrom", "did you mean 'uniform'?"),
        ("noise_informed:draws=0", "a whole number of at least 1"),
        ("released:draws=-2", "a whole number of at least 1"),
        ("class_weighted:power=-1", "a number of at least 0"),
        ("typicality:sharpness=nan", "a number of at least 0"),
        ("average:weights=uniform", "has no options"),
        ("features:weights", "key=value"),
    ],
)
def test_wrong_fusion_rules(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        make_fusion(text)
