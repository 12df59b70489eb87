"""Commands to try: a spec run again with something changed, its uploads fused otherwise."""

import shlex
from collections.abc import Mapping

from fedshot.changed import changed_settings, options_to_type, words_of
from fedshot.own_rule import settled
from fedshot.partition import unread
from fedshot.spec import Spec, as_typed


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
    if "fusion" in changes:  # options of the method's own rule mean nothing to another one
        spec = settled(spec.model_copy(update={"fusion": changes["fusion"]}), replacing=True)
    method = str(changes.get("method", spec.method))
    kept = changed_settings(spec, method)
    if changes.keys() & {"method", "fusion"}:
        kept.pop("fusion", None)
    options = {} if "method" in changes else options_to_type(spec.method, spec.options)
    settings = {**kept, **options, **changes}
    settings.pop("method", None)
    return command("run", method, *typed(spec, settings))


def typed(spec: Spec, given: Mapping[str, object]) -> list[str]:
    """Settings as words of a command, those with an option of their own first; without what the division ignores.

    Args:
        spec: what holds where nothing is given.
    """
    settings, file = dict(given), given.get("partition_file")
    for name in unread(str(settings.get("recipe", spec.recipe)), str(file) if file else None):
        settings.pop(name, None)
    found = [as_typed(name, words_of(value)) for name, value in settings.items()]
    found.sort(key=lambda words: words[0] == "--set")
    return [word for words in found for word in words]
