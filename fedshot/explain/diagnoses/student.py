"""One model that was taught by an ensemble: whether it learned its lesson, and whether the lesson was the right one."""

import math
from typing import Any

from fedshot.explain.commands import again, command
from fedshot.explain.finding import Fact, Finding
from fedshot.explain.run import Run
from fedshot.fusion import FUSIONS
from fedshot.options import parse_inline, resolve

BEHIND, SEVERE_BEHIND = 0.02, 0.10  # of all test images
ANOTHER_KIND = 0.05  # it agrees so much more with its teacher on what it was taught

_ANOTHER_LESSON = (
    "It learned its lesson, and the lesson was another one: the images that taught it are too few or of another kind "
    "than those that it is asked about, and about those its teacher was not heard."
)
_NOT_LEARNED = (
    "It has not learned what it was shown: it disagrees with its teacher nearly as often on the images that taught it. "
    "It needs more steps, or another rate, before it needs other images."
)


def student_behind(run: Run) -> list[Finding]:
    """A student that is right less often than its teacher, by more than chance."""
    student, tests = run.record.student, sum(run.tests)
    if student is None or student.agreement is None or student.agreement_taught is None or not tests:
        return []
    gap = student.teacher_accuracy - student.accuracy
    chance = 2 * math.sqrt((1 - student.agreement) / tests)  # two deviations: only where they disagree can they differ
    if gap < max(BEHIND, chance):
        return []
    learned = student.agreement_taught - student.agreement >= ANOTHER_KIND
    return [
        Finding(
            "student_behind",
            "severe" if gap >= SEVERE_BEHIND else "warning",
            f"The one model is {100 * gap:.1f} points behind the {student.teacher_models} that taught it: it answers "
            f"as they do on {student.agreement_taught:.1%} of the images that taught it and on "
            f"{student.agreement:.1%} of the test images.",
            (
                Fact("accuracy of the teacher − of the student", gap, "%", f"≥ {max(BEHIND, chance):.1%}"),
                Fact("agreement on the lesson − on test images", student.agreement_taught - student.agreement, "%"),
            ),
            _ANOTHER_LESSON if learned else _NOT_LEARNED,
            _remedies(run, learned),
        )
    ]


def _remedies(run: Run, learned: bool) -> tuple[str, ...]:
    """More steps; or more images, images of the task, less to learn. Nothing for a rule that is not ours."""
    spec, said = run.record.spec, list[str]()
    rule, _, given = run.record.final.fusion.partition(":")
    if rule not in ("distilled", "single"):
        return ()
    options = resolve(FUSIONS[rule], spec.options if spec.method == rule else parse_inline(given, rule), rule)
    if not learned:
        more = {"student.passes": 3 * options["student.passes"]}
        return (f"Let it see its lesson more often: {_taught(run, rule, options | more)}",)
    sections = [upload.sections for number in run.fused if (upload := run.upload(number))]
    if options.get("beside") == "nothing" and sections and all("common" in sent for sent in sections):
        beside = {"beside": "common"}
        said.append(f"Let it learn only what common features lack: {_taught(run, rule, options | beside)}")
    if options["images"] != "public":
        made = options["count"] or sum(run.record.clients[number].samples for number in run.fused)
        said.append(f"Teach it by more images: {_taught(run, rule, options | {'count': 4 * made})}")
    share = _share(spec.public)
    if options["images"] != "public" or share is None:
        public, kept = {"images": "public"}, {key: value for key, value in options.items() if key != "count"}
        changed = public if spec.method == rule else {"fusion": _typed(rule, kept | public)}
        said.append(
            f"Teach it by images of the task, a share that clients give: {again(spec, {'public': '0.1'} | changed)}"
        )
    else:
        said.append(f"Give it more public images: {again(spec, {'public': f'{min(0.5, 2 * share):g}'})}")
    return tuple(said)


def _share(public: str | None) -> float | None:
    """A share of the task's own images; None for another data set."""
    try:
        return float(public or "")
    except ValueError:
        return None


def _taught(run: Run, rule: str, options: dict[str, Any]) -> str:
    """What to type for the same clients and another lesson, in backticks."""
    return command("fuse", run.path, "-f", _typed(rule, options))


def _typed(rule: str, options: dict[str, Any]) -> str:
    """A rule with those of its options that are not usual."""
    usual = resolve(FUSIONS[rule], {}, rule)
    given = [f"{key}={str(value).replace(',', ';')}" for key, value in options.items() if value != usual[key]]
    return ":".join(filter(None, (rule, ",".join(given))))
