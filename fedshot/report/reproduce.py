"""How to get runs again."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedshot.spec import as_typed

if TYPE_CHECKING:
    from fedshot.record import Record


def python_lines(records: Sequence["Record"]) -> str:
    """Python that runs the specs of one method again: what differs from the defaults, over its seeds.

    Runs that differ in more than the seed are written one by one.
    """
    settings = [{k: v for k, v in _changed(record).items() if k != "seed"} for record in records]
    seeds = [record.spec.seed for record in records]
    lines = ["from fedshot.experiment import run", "from fedshot.spec import make_spec", ""]
    if all(setting == settings[0] for setting in settings):
        lines.append(f"for seed in {seeds}:")
        lines += ["    " + line for line in _call(settings[0], "seed").splitlines()]
    else:
        lines += [_call(setting, str(seed)) for setting, seed in zip(settings, seeds, strict=True)]
    return "\n".join(lines)


def _changed(record: "Record") -> dict[str, object]:
    """Fields of the spec that are not at their default."""
    fields = type(record.spec).model_fields
    values = {name: getattr(record.spec, name) for name in fields}
    return {
        name: value for name, value in values.items() if value != fields[name].get_default(call_default_factory=True)
    }


def _call(setting: dict[str, object], seed: str) -> str:
    arguments = "".join(f"    {name}={value!r},\n" for name, value in setting.items())
    return f"spec = make_spec(\n{arguments}    seed={seed},\n)\nprint(spec.seed, run(spec).final.accuracy)"


def shell_line(records: Sequence["Record"]) -> str:
    """The command that runs one method again over its seeds, for runs that differ in nothing but the seed."""
    from fedshot.explain.commands import own_options
    from fedshot.partition import unread

    spec = records[0].spec
    left_out = ("method", "options", "files", "seed", *unread(spec.recipe, spec.partition_file))
    changed = {k: v for k, v in _changed(records[0]).items() if k not in left_out}
    words = ["fedshot", "compare", spec.method, "--seeds", ",".join(str(record.spec.seed) for record in records)]
    for name, value in changed.items():
        if name == "evaluate_at":
            words += ["--evaluate-at", ",".join(map(str, spec.evaluate_at))]
        else:
            words += as_typed(name, value)
    for name, value in own_options(spec).items():
        words += ["--set", f"{name}={value}"]
    return shlex.join(words)
