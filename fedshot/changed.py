"""What a complete spec has that its method, its data set and the defaults would not give it: what must be typed."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedshot.spec import Spec

_APART = ("method", "options", "files", "evaluate_at", "precision")  # the device chooses the last


def changed_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not at the method's defaults; of a method in a file, which is not run here, all."""
    usual = _usual_options(method)
    return {key: value for key, value in options.items() if key not in usual or usual[key] != value}


def gone_options(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an earlier form of a method that it has no more; they can be read in a record, not typed."""
    from fedshot.methods import METHODS

    if method not in METHODS:  # one in a file, which is not run here
        return {}
    known = _usual_options(method)
    return {key: value for key, value in options.items() if key not in known}


def options_to_type(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What must be typed of a method's options, of those that it still has."""
    gone = gone_options(method, options)
    return {key: value for key, value in changed_options(method, options).items() if key not in gone}


def variant(method: str, options: Mapping[str, Any]) -> str:
    """A method with the options that are not at their default, as it would be typed; one in a file with all of them.

    >>> variant("etf", {"weight": 2.0, "alignment.measure": "cosine"}), variant("fafi", {})
    ('etf:weight=2,alignment.measure=cosine', 'fafi')
    """
    changed = [f"{key}={words_of(value)}" for key, value in changed_options(method, options).items()]
    return f"{method}:{','.join(changed)}" if changed else method


def contents(spec: Spec) -> dict[str, str]:
    """The first digits of the sha256 of each file of the user's that the run reads, by its name, or path if need be.

    >>> contents(Spec(method="fafi", files={"a/cats": "0123456789", "b/x.py": "1234567890", "c/x.py": "2345678901"}))
    {'cats': '01234567', 'b/x.py': '12345678', 'c/x.py': '23456789'}
    """
    short = [Path(name).name for name in spec.files]
    return {
        (path if short.count(name) > 1 else name): sha256[:8]
        for name, (path, sha256) in zip(short, spec.files.items(), strict=True)
    }


def words_of(value: object) -> str:
    """A value as it would be typed, every digit of it.

    >>> words_of(2.0), words_of(1e-05), words_of(0.12345671), words_of("etf"), words_of(None)
    ('2', '1e-05', '0.12345671', 'etf', 'none')
    """
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def changed_settings(spec: Spec, method: str | None = None) -> dict[str, Any]:
    """The settings that would be others if nothing were typed; without evaluation points and the precision.

    Args:
        method: one that is to be run in place of the spec's, with the same settings.
    """
    usual = usual_settings(method or spec.method, spec.data)
    given = {name: getattr(spec, name) for name in Spec.model_fields if name not in _APART}
    changed = {name for name, value in given.items() if value != usual[name]}
    for name in given:  # who types a share has no bound, unless it is typed as well
        if changed & {name, f"{name}_most"}:
            changed |= {name, f"{name}_most"} & given.keys()
    return {name: value for name, value in given.items() if name in changed and value is not None}


@lru_cache(maxsize=256)
def usual_settings(method: str, data: str) -> Mapping[str, Any]:
    """The settings of a run of which nothing but method and data was typed; of a method in a file, the defaults."""
    from fedshot.data import usual_augmentation
    from fedshot.methods import METHODS

    usual = {name: field.default for name, field in Spec.model_fields.items()}
    usual["augmentation"] = usual_augmentation(data)
    if method in METHODS:
        made = METHODS[method]()
        usual |= {**made.settings, "fusion": made.fusion.name}
    return usual


@lru_cache(maxsize=64)
def _usual_options(method: str) -> Mapping[str, Any]:
    from fedshot.methods import METHODS
    from fedshot.options import options_of

    known = options_of(METHODS[method]) if method in METHODS else {}
    return {key: option.default for key, option in known.items()}
