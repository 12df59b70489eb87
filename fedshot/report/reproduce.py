"""How to get runs again."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedshot.changed import changed_settings, gone_options, options_to_type, words_of

if TYPE_CHECKING:
    from fedshot.record import Record
    from fedshot.spec import Spec


def python_lines(records: Sequence["Record"]) -> str:
    """Python that runs the specs of one method again: what differs from the defaults, over its seeds.

    Runs that differ in more than the seed are written one by one.
    """
    settings = [_arguments(record.spec) for record in records]
    seeds = [record.spec.seed for record in records]
    lines = ["from fedshot.experiment import run", "from fedshot.spec import make_spec", "", *_of_before(records)]
    if all(setting == settings[0] for setting in settings):
        lines.append(f"for seed in {seeds}:")
        lines += ["    " + line for line in _call(settings[0], "seed").splitlines()]
    else:
        lines += [_call(setting, str(seed)) for setting, seed in zip(settings, seeds, strict=True)]
    return "\n".join(lines)


def _arguments(spec: "Spec") -> dict[str, object]:
    """What make_spec must be told."""
    apart = {
        "method": spec.method,
        "options": options_to_type(spec.method, spec.options),
        "files": spec.files,
        "precision": spec.precision,
        "evaluate_at": spec.evaluate_at,
    }
    made = {**{name: value for name, value in apart.items() if value}, **changed_settings(spec)}
    made.pop("seed", None)
    return made


def _call(setting: dict[str, object], seed: str) -> str:
    arguments = "".join(f"    {name}={value!r},\n" for name, value in setting.items())
    return f"spec = make_spec(\n{arguments}    seed={seed},\n)\nprint(spec.seed, run(spec).final.accuracy)"


def shell_line(records: Sequence["Record"]) -> str:
    """The command that runs one method again over its seeds, for runs that differ in nothing but the seed."""
    from fedshot.explain.commands import typed

    spec = records[0].spec
    points = [point for point in spec.evaluate_at if point != spec.epochs]
    precision = {"precision": spec.precision} if spec.precision else {}
    changed = {**changed_settings(spec), **precision, **options_to_type(spec.method, spec.options)}
    changed.pop("seed", None)
    seeds = ",".join(str(record.spec.seed) for record in records)
    evaluated = ["--evaluate-at", ",".join(map(str, spec.evaluate_at))] if points else []
    line = shlex.join(["fedshot", "compare", spec.method, "--seeds", seeds, *evaluated, *typed(spec, changed)])
    return "\n".join([*_of_before(records), line])


def _of_before(records: Sequence["Record"]) -> list[str]:
    """A comment where the runs are of an earlier form of their method: what follows runs the present one."""
    gone = {
        key: value for record in records for key, value in gone_options(record.spec.method, record.spec.options).items()
    }
    if not gone:
        return []
    told = ", ".join(f"{key}={words_of(value)}" for key, value in gone.items())
    return [f"# these runs are of an earlier form of {records[0].spec.method} ({told}); this runs the present one"]
