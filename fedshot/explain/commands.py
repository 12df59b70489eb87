"""Commands to try: a spec run again with something changed, its uploads fused otherwise."""

import shlex
from collections.abc import Mapping

from fedshot.data import usual_augmentation
from fedshot.partition import unread
from fedshot.spec import Spec, as_typed

_LEFT_OUT = ("evaluate_at", "precision")  # chosen anew by the device


def command(*words: object) -> str:
    """What to type, in backticks.

    >>> command("fuse", "my runs/a", "-f", "moments")
    "`fedshot fuse 'my runs/a' -f moments`"
    """
    return f"`{shlex.join(['fedshot', *map(str, words)])}`"


def again(spec: Spec, changes: Mapping[str, object]) -> str:
    """What to type for the same run with other settings, in backticks.

    Args:
        changes: by name; `method` for another method (which leaves the options of this one behind), the fields of Spec,
            and options of the method.

    >>> again(Spec(method="etf_decoupled", epochs=30, clip_scope="joint"), {"method": "aurora", "seed": 2})
    '`fedshot run aurora --epochs 30 --seed 2 --set clip_scope=joint`'
    """
    method = str(changes.get("method", spec.method))
    kept = changed_settings(spec)
    if "method" in changes:
        kept.pop("fusion", None)
    settings = {**kept, **({} if "method" in changes else own_options(spec)), **changes}
    settings.pop("method", None)
    return command("run", method, *typed(spec, settings))


def changed_settings(spec: Spec) -> dict[str, object]:
    """The settings of a run that its method, its data set or the default would not give it."""
    usual = {name: field.default for name, field in Spec.model_fields.items()}
    usual |= {"fusion": _own_rule(spec), "augmentation": usual_augmentation(spec.data)}
    left_out = ("method", "options", "files", *_LEFT_OUT)
    kept = {name: getattr(spec, name) for name in Spec.model_fields if name not in left_out}
    return {name: value for name, value in kept.items() if value not in (None, usual[name])}


def typed(spec: Spec, given: Mapping[str, object]) -> list[str]:
    """Settings as words of a command, those with an option of their own first; without what the division ignores.

    Args:
        spec: what holds where nothing is given.
    """
    settings, file = dict(given), given.get("partition_file")
    for name in unread(str(settings.get("recipe", spec.recipe)), str(file) if file else None):
        settings.pop(name, None)
    found = [as_typed(name, _text(value)) for name, value in settings.items()]
    found.sort(key=lambda words: words[0] == "--set")
    return [word for words in found for word in words]


def _own_rule(spec: Spec) -> str | None:
    """The rule that a method of ours is fused by where none is asked for."""
    from fedshot.methods import METHODS

    return METHODS[spec.method]().fusion.name if spec.method in METHODS else None


def reference(spec: Spec) -> str:
    """The method as `fedshot compare` reads it: NAME:key=value,key=value.

    >>> reference(Spec(method="etf", options={"weight": 2.0}))
    'etf:weight=2'
    """
    options = ",".join(f"{key}={_text(value)}" for key, value in own_options(spec).items())
    return f"{spec.method}:{options}" if options else spec.method


def own_options(spec: Spec) -> dict[str, object]:
    """The options that differ from the method's defaults; of a method in a file, which is not run here, all."""
    from fedshot.methods import METHODS
    from fedshot.options import options_of

    known = options_of(METHODS[spec.method]) if spec.method in METHODS else {}
    return {key: value for key, value in spec.options.items() if key not in known or value != known[key].default}


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
