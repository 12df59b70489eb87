"""Which rule answers: the method's own, whose options are the method's and clients do not depend on, or another."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fedshot.errors import UserError
from fedshot.fusion import FUSIONS, Fusion, make_fusion
from fedshot.method import Method
from fedshot.methods import METHODS, canonical
from fedshot.options import options_of, parse_inline, resolve
from fedshot.spec import Spec
from fedshot.user_file import file_of, split_reference


@lru_cache
def options_of_rule(method: str) -> frozenset[str]:
    """The options of a method that only its rule reads; of a method in a file, which may do anything, none."""
    return frozenset(METHODS[method]().of_rule) if method in METHODS else frozenset()


def check_heard(method: str, options: Mapping[str, Any], asked: str | None) -> None:
    """Refuses options of a method's own rule where another rule is asked for: they would do nothing, and name the run.

    Args:
        options: all of the method's, by their full keys.
        asked: the rule, if the method's own is not to be taken.
    """
    own = options_of_rule(method)
    rule = split_reference(asked)[0] if asked else None
    if not own or rule in (None, METHODS[method]().fusion.name):
        return
    known, theirs = options_of(METHODS[method]), options_of(FUSIONS[rule]) if rule in FUSIONS else {}
    if changed := sorted(key for key in own if options[key] != known[key].default):
        key = changed[0]
        hint = f": give it to that rule, --fusion {rule}:{key}={options[key]}" if key in theirs else ""
        raise UserError(
            f"{key} is an option of {METHODS[method]().fusion.name!r}, the own rule of method {method!r}: fusion "
            f"{rule} does not read it{hint}"
        )


def settled(spec: Spec, replacing: bool = False) -> Spec:
    """A spec that asks for a method's own rule with options, as one that asks for the method with these options.

    So that one thing has one name: recommended with `routed:sharpness=1` is recommended:sharpness=1. Options that are
    not named have the rule's defaults.

    Args:
        replacing: whether such options of the spec give way, also to another rule, which does not read them; otherwise
            they contradict the rule's.
    """
    method = spec.method if file_of(spec.method) else canonical(spec.method)
    own = options_of_rule(method)
    if not own or not spec.fusion:
        return spec
    name, typed = split_reference(spec.fusion)
    short = own | {key.rpartition(".")[2] for key in own}
    others = {key: value for key, value in spec.options.items() if key not in short}
    if METHODS[method]().fusion.name != name:
        return spec.model_copy(update={"options": others}) if replacing else spec
    if not typed:
        return spec
    twice = sorted(key for key in spec.options if key in short)
    if twice and not replacing:
        raise UserError(
            f"{twice[0]} is an option of method {method!r} and of its rule {name!r}: give the rule's options in one "
            f"place, --set {twice[0]}=… or --fusion {spec.fusion}"
        )
    values = resolve(FUSIONS[name], parse_inline(typed, f"fusion rule {name!r}"), f"fusion rule {name!r}")
    return spec.model_copy(update={"fusion": name, "options": {**others, **{key: values[key] for key in own}}})


def chosen_rule(asked: str | None, method: Method, options: Mapping[str, Any]) -> Fusion:
    """The fusion rule that was asked for, checked against what clients of the method send."""
    fusion = rule_of(method, asked)
    if asked and fusion.name == method.fusion.name != asked and not file_of(asked):
        known = FUSIONS.get(fusion.name)
        if known and (twice := sorted(options_of(known).keys() & options.keys())):
            raise UserError(
                f"method {method.name!r} makes its own rule {fusion.name!r}: give the rule's options as the method's, "
                f"--set {twice[0]}=…, instead of --fusion {asked}"
            )
    check_sections(fusion, method)
    return fusion


def rule_of(method: Method, asked: str | None) -> Fusion:
    """The fusion rule that was asked for; the method's own if none was.

    Its bare name means it as the method made it, with the method's options.
    """
    return method.fusion if asked in (None, method.fusion.name) else make_fusion(asked)


def check_sections(fusion: Fusion, method: Method) -> None:
    """Refuses a rule that reads what the clients of a method never send."""
    if unknown_ones := [name for name in fusion.needs if name not in ("weights", *method.statistics)]:
        raise UserError(
            f"fusion {fusion.name} needs {', '.join(unknown_ones)}, which clients of {method.name} do not send: choose "
            f"another rule, e.g. {method.fusion.name}"
        )
