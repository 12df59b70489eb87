"""The rule that a method makes itself: its options are the method's, and clients do not depend on them."""

from functools import lru_cache

from fedshot.errors import UserError
from fedshot.fusion import FUSIONS, split_rule
from fedshot.methods import METHODS, canonical
from fedshot.options import parse_inline, resolve
from fedshot.spec import Spec
from fedshot.user_file import file_of


@lru_cache
def options_of_rule(method: str) -> frozenset[str]:
    """The options of a method that only its rule reads; of a method in a file, which may do anything, none."""
    return frozenset(METHODS[method]().of_rule) if method in METHODS else frozenset()


def settled(spec: Spec, replacing: bool = False) -> Spec:
    """A spec that asks for a method's own rule with options, as one that asks for the method with these options.

    So that one thing has one name: recommended with `routed:sharpness=1` is recommended:sharpness=1. Options that are
    not named have the rule's defaults.

    Args:
        replacing: whether such options of the spec give way; otherwise they contradict the rule's.
    """
    name, typed = split_rule(spec.fusion) if spec.fusion and not file_of(spec.fusion) else ("", "")
    method = spec.method if file_of(spec.method) else canonical(spec.method)
    own = options_of_rule(method)
    if not typed or not own or METHODS[method]().fusion.name != name:
        return spec
    short = own | {key.rpartition(".")[2] for key in own}
    twice = sorted(key for key in spec.options if key in short)
    if twice and not replacing:
        raise UserError(
            f"{twice[0]} is an option of method {method!r} and of its rule {name!r}: give the rule's options in one "
            f"place, --set {twice[0]}=… or --fusion {spec.fusion}"
        )
    values = resolve(FUSIONS[name], parse_inline(typed, f"fusion rule {name!r}"), f"fusion rule {name!r}")
    others = {key: value for key, value in spec.options.items() if key not in short}
    return spec.model_copy(update={"fusion": name, "options": {**others, **{key: values[key] for key in own}}})
