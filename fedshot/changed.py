"""What a complete spec has that its method, its data set and the defaults would not give it: what must be typed."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from fedshot.spec import Spec

_APART = ("method", "options", "files", "evaluate_at", "precision")  # the device chooses the last


def changed_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not at the method's defaults; of a method in a file, which is not run here, all."""
    usual = _usual_options(method)
    return {key: value for key, value in options.items() if key not in usual or usual[key] != value}


def changed_settings(spec: Spec, method: str | None = None) -> dict[str, Any]:
    """The settings that would be others if nothing were typed; without evaluation points and the precision.

    Args:
        method: one that is to be run in place of the spec's, with the same settings.
    """
    from fedshot.data import usual_augmentation
    from fedshot.methods import METHODS

    usual = {name: field.default for name, field in Spec.model_fields.items()}
    usual["augmentation"] = usual_augmentation(spec.data)
    if (name := method or spec.method) in METHODS:
        made = METHODS[name]()
        unbound = {key.removesuffix("_most") for key in made.settings if getattr(spec, key) is None}
        usual |= {key: value for key, value in made.settings.items() if key not in unbound}  # typed, it has no bound
        usual["fusion"] = made.fusion.name
    kept = {name: getattr(spec, name) for name in Spec.model_fields if name not in _APART}
    return {name: value for name, value in kept.items() if value is not None and value != usual[name]}


@lru_cache(maxsize=64)
def _usual_options(method: str) -> Mapping[str, Any]:
    from fedshot.methods import METHODS
    from fedshot.options import options_of

    known = options_of(METHODS[method]) if method in METHODS else {}
    return {key: option.default for key, option in known.items()}
