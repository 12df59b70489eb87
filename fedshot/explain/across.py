"""What several runs show together: too few seeds, unlike settings, and contrasts between methods on the same data."""

from collections.abc import Callable, Sequence

from fedshot.changed import changed_settings, variant
from fedshot.explain.commands import command, typed
from fedshot.explain.explained import Explained
from fedshot.explain.finding import Fact, Finding
from fedshot.report.wording import number_of
from fedshot.spec import Spec
from fedshot.study.statistics import ENOUGH_SEEDS

_FREE = ("method", "options", "files", "seed", "fusion", "evaluate_at")  # what compared runs may differ in
_DIVISION = ("recipe", "alpha", "classes_per_client", "partition_file")  # seen in the partition itself
_COMMON = tuple(name for name in Spec.model_fields if name not in (*_FREE, *_DIVISION))
_MOST_NAMED = 5  # methods that do not have a finding; more are counted
_DECISIVE = ("data", "clients", "epochs")  # without these in common two accuracies are figures of two tasks


def by_label(runs: Sequence[Explained]) -> dict[str, list[Explained]]:
    """The runs of each method, in order."""
    found: dict[str, list[Explained]] = {}
    for run in runs:
        found.setdefault(run.label, []).append(run)
    return found


def _by_rule(runs: Sequence[Explained]) -> dict[str, list[Explained]]:
    """The runs of each method, and of each fusion rule where it was fused by several."""
    found: dict[str, list[Explained]] = {}
    for label, of_label in by_label(runs).items():
        several = len({run.record.final.fusion for run in of_label}) > 1
        for run in of_label:
            found.setdefault(f"{label} by {run.record.final.fusion}" if several else label, []).append(run)
    return found


def too_few_seeds(runs: Sequence[Explained]) -> list[Finding]:
    """Methods side by side with fewer seeds than a claim needs."""
    methods = by_label(runs)
    seeds = {label: {run.record.spec.seed for run in of_label} for label, of_label in methods.items()}
    few = {label: len(found) for label, found in seeds.items() if len(found) < ENOUGH_SEEDS}
    if len(methods) < 2 or not few:
        return []
    fewest = min(few, key=lambda label: few[label])
    return [
        Finding(
            "too_few_seeds",
            "warning",
            f"{number_of(len(few), 'method')} of {len(methods)} ran on fewer than {ENOUGH_SEEDS} seeds ({fewest}: "
            f"{number_of(few[fewest], 'seed')}): a difference between methods cannot be told from one between seeds.",
            tuple(Fact(f"seeds of {label}", count, "", f"< {ENOUGH_SEEDS}") for label, count in few.items()),
            "The seed decides partition, start and batches. Over seeds the same method differs by several points, and "
            "one or two values have no spread to compare with.",
            (f"Run at least {ENOUGH_SEEDS} seeds: {_compare(methods)}",),
        )
    ]


def _compare(methods: dict[str, list[Explained]]) -> str:
    """The same methods over three seeds under one setting: what all runs share, and for the rest that of one method."""
    specs = [run.record.spec for runs in methods.values() for run in runs]
    shared = {
        name: value
        for one in specs
        for name, value in changed_settings(one).items()
        if name != "seed" and all(getattr(spec, name) == value for spec in specs)
    }
    _, agreed = _model(methods)
    first = [runs[0].record.spec for runs in methods.values()]
    references = [variant(spec.method, spec.options) for spec in first]
    untold = Spec(method=specs[0].method)  # what holds where nothing is typed
    typed_in = command("compare", *references, *typed(untold, {**shared, **agreed}), "--seeds", "1,2,3")
    other = any("fusion" in changed_settings(spec) for spec in specs) and "fusion" not in shared
    return f"{typed_in} (each by its own rule; `fedshot fuse` then tries the others)" if other else typed_in


def _model(methods: dict[str, list[Explained]]) -> tuple[str, dict[str, object]]:
    """The method whose settings the others are to have where they differ, and these settings: it is the least usual."""
    seeds = {run.record.spec.seed for runs in methods.values() for run in runs}
    unlike = [name for name in _COMMON if _values(methods, name)]
    unlike += _DIVISION if any(_are_divided(methods, seed) for seed in seeds) else ()
    specs = {label: runs[0].record.spec for label, runs in methods.items()}
    unusual = {
        label: sum(getattr(spec, name) != Spec.model_fields[name].default for name in unlike)
        for label, spec in specs.items()
    }
    model = max(unusual, key=lambda label: unusual[label])
    theirs = ((name, getattr(specs[model], name)) for name in unlike)
    return model, {name: value for name, value in theirs if value is not None}


def not_comparable(runs: Sequence[Explained]) -> list[Finding]:
    """Settings, or partitions of one seed, that some methods have and others have not."""
    methods = by_label(runs)
    if len(methods) < 2:
        return []
    unlike = {name: values for name in _COMMON if (values := _values(methods, name))}
    seeds = sorted({run.record.spec.seed for run in runs})
    divided = [seed for seed in seeds if _are_divided(methods, seed)]
    if not unlike and not divided:
        return []
    decisive = [name for name in unlike if name in _DECISIVE]
    model, agreed = _model(methods)
    whose = f", here that of {model}" if agreed else ""
    words = [f"the {name.replace('_', ' ')}" for name in unlike]
    words += [f"the partition at seed {', '.join(map(str, divided))}"] if divided else []
    return [
        Finding(
            "not_comparable",
            "severe" if decisive or divided else "warning",
            "The methods here do not share "
            f"{' and '.join([', '.join(words[:-1]), words[-1]] if words[1:] else words)}: their accuracies do not "
            "compare.",
            (
                *(Fact(name, told, "", "differs between methods") for name, told in unlike.items()),
                *(Fact(f"partitions at seed {seed}", _told_partitions(methods, seed), "", "> 1") for seed in divided),
            ),
            "A difference in accuracy is then one of method and setting at once. Equal seeds give equal partitions, "
            "initial weights and views only where data, clients and recipe are equal.",
            (f"Run all of them under one setting{whose}: {_compare(methods)}",),
        )
    ]


def _values(methods: dict[str, list[Explained]], field: str) -> str:
    """Who has which values of a setting, in words; empty where all methods have the same ones."""
    found = {label: {str(getattr(run.record.spec, field)) for run in runs} for label, runs in methods.items()}
    if not _differs(list(found.values())):
        return ""
    return "; ".join(f"{label} {', '.join(sorted(values))}" for label, values in found.items())


def _partitions(runs: Sequence[Explained], seed: int) -> set[str]:
    return {_fingerprint(run) for run in runs if run.record.spec.seed == seed}


def _fingerprint(run: Explained) -> str:
    return str(run.record.partition.get("fingerprint"))


def _differs(sets: Sequence[set[str]]) -> bool:
    """Whether two methods that have something have unlike things."""
    return len({frozenset(values) for values in sets if values}) > 1


def _are_divided(methods: dict[str, list[Explained]], seed: int) -> bool:
    """Whether methods had other partitions at a seed."""
    return _differs([_partitions(of_label, seed) for of_label in methods.values()])


def _told_partitions(methods: dict[str, list[Explained]], seed: int) -> str:
    found = {label: _partitions(runs, seed) for label, runs in methods.items()}
    return "; ".join(f"{label} {', '.join(sorted(f[:8] for f in prints))}" for label, prints in found.items() if prints)


def contrast(runs: Sequence[Explained]) -> list[Finding]:
    """Findings that one method, or rule, always has and another never, on the same seeds, partitions and settings."""
    methods = _by_rule(runs)
    worth = {f.name for run in runs for f in run.findings if f.severity != "note"}
    findings = []
    for name in sorted(worth):
        always = {label: found for label, found in methods.items() if all(run.has(name) for run in found)}
        never = {label: found for label, found in methods.items() if not any(run.has(name) for run in found)}
        shared = _twins(always) & _twins(never)
        if shared:
            some, others = (_among(shared, side) for side in (always, never))
            findings.append(_contrast(name, some, others, len({twin[0] for twin in shared})))
    return findings


def _twins(methods: dict[str, list[Explained]]) -> set[tuple[object, ...]]:
    """The seeds, partitions and settings (those that are not the method's) under which these ran."""
    return {_twin(run) for runs in methods.values() for run in runs}


def _twin(run: Explained) -> tuple[object, ...]:
    spec = run.record.spec
    return (spec.seed, _fingerprint(run), *(getattr(spec, name) for name in _COMMON))


def _among(shared: set[tuple[object, ...]], methods: dict[str, list[Explained]]) -> dict[str, list[Explained]]:
    """The runs of each method under these; methods that have none are left out."""
    found = {label: [run for run in runs if _twin(run) in shared] for label, runs in methods.items()}
    return {label: runs for label, runs in found.items() if runs}


def _contrast(name: str, always: dict[str, list[Explained]], never: dict[str, list[Explained]], seeds: int) -> Finding:
    def told(label: str, runs: Sequence[Explained]) -> Fact:
        accuracy = sum(run.record.final.accuracy for run in runs) / len(runs)
        return Fact(label, f"{sum(run.has(name) for run in runs)} of {len(runs)} runs, mean accuracy {accuracy:.1%}")

    facts = [told(label, runs) for label, runs in always.items()]
    if len(never) > _MOST_NAMED:
        facts.append(told(f"{len(never)} others", [run for runs in never.values() for run in runs]))
    else:
        facts += [told(label, runs) for label, runs in never.items()]
    others = ", ".join(never) if len(never) <= _MOST_NAMED else f"{len(never)} others"
    return Finding(
        "contrast",
        "note",
        f"{name} is in every run of {', '.join(always)} and in none of {others}, on "
        f"{number_of(seeds, 'seed')} with the same partition.",
        tuple(facts),
        "Seed, partition and settings are the same, so the method, or the rule, makes the difference; the findings of "
        "the runs say how.",
        ("Read it in a run that has it: " + command("explain", next(iter(always.values()))[0].path),),
    )


ACROSS: dict[str, Callable[[Sequence[Explained]], list[Finding]]] = {
    "too_few_seeds": too_few_seeds,
    "not_comparable": not_comparable,
    "contrast": contrast,
}
