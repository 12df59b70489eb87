"""What a reader has to know about the figure itself: the curve before it, what the rule read, what clients heard."""

import math
from itertools import takewhile

from fedshot.explain.commands import again, command
from fedshot.explain.finding import Fact, Finding, Series
from fedshot.explain.run import Run

FELL, SEVERE_FELL = 0.03, 0.10  # of all test images, between an earlier point and the last
IDLE = 0.2  # of the run; a shorter start is what any training needs
APART = 0.05  # of all images: less decides nothing
LEARNED = 2.0  # times naming one class: below that the whole run taught nothing, which other findings tell


def transductive_score(run: Run) -> list[Finding]:
    """The fusion rule read statistics of the test images."""
    final = run.record.final
    if final.inductive:
        return []
    return [
        Finding(
            "transductive_score",
            "warning",
            f"The accuracy of {final.accuracy:.1%} is transductive: the rule {final.fusion} read statistics of all "
            "test images.",
            (Fact("inductive", "no", "", "= no"), Fact("test images read together", sum(run.tests))),
            "Such a rule cannot answer for one image alone, and its figure depends on which images come together. It "
            "does not compare with inductive figures.",
            ("The inductive counterpart: " + command("fuse", run.path, "-f", "moments", "-f", "features"),),
        )
    ]


def tested_on_another_kind(run: Run) -> list[Finding]:
    """Test images are clearly harder, or easier, than those that clients hold back, which come from what they hold."""
    held, final, tests = run.record.held_out, run.record.final, sum(run.tests)
    if held is None or not tests:
        return []
    gap = held.accuracy - final.accuracy
    noise = math.sqrt(sum(p * (1 - p) / n for p, n in ((held.accuracy, held.images), (final.accuracy, tests))))
    if abs(gap) < max(APART, 3 * noise):
        return []
    harder = "harder" if gap > 0 else "easier"
    return [
        Finding(
            "tested_on_another_kind",
            "warning",
            f"Test images are {harder} than what clients hold: {final.accuracy:.1%} against {held.accuracy:.1%} on "
            f"{held.images:,} images that they held back.",
            (
                Fact("difference", abs(gap), "%", f"≥ {max(APART, 3 * noise):.1%}"),
                Fact("three deviations of such a difference", 3 * noise, "%"),
            ),
            "Images that were held back have the same source as those that were trained on. Test images that come from "
            "elsewhere (other writers, another camera, another time) are harder, and so they are where nearly the same "
            "image lies on both sides of what was held back. A choice by held-out images, and a rule that asks "
            "how familiar an image looks, then go by images of another kind than those of the test.",
            (
                "See which rules suffer: "
                + command("fuse", run.path)
                + " beside "
                + command("fuse", run.path, "--on", "held-out"),
                "Look for images that are nearly alike. Where it is known who owns an image, divide by owners (recipe "
                "natural) and test on owners that no client has.",
            ),
        )
    ]


def more_than_one_phase(run: Run) -> list[Finding]:
    """The clients heard something back."""
    phases = run.record.final.phases
    if phases < 2:
        return []
    return [
        Finding(
            "more_than_one_phase",
            "warning",
            f"The method exchanges messages {phases} times: its accuracy of {run.record.final.accuracy:.1%} is not "
            "one-shot.",
            (Fact("phases", phases, "", "≥ 2"),),
            "What clients hear from the server after their upload is knowledge that one-shot methods do not have.",
            ("Compare it with methods of as many phases only.",),
        )
    ]


def overtraining(run: Run) -> list[Finding]:
    """An earlier evaluation point was clearly better than the last, which is the one that counts."""
    curve, total = run.record.curve, sum(run.tests)
    if len(curve) < 2 or not total:
        return []
    best, last = max(curve[:-1], key=lambda point: point.accuracy), curve[-1]
    fall = best.accuracy - last.accuracy
    # two deviations of the difference of two shares, as if they were independent: on the safe side for the same images
    noise = 2 * math.sqrt(sum(p.accuracy * (1 - p.accuracy) for p in (best, last)) / total)
    if fall < max(FELL, noise):
        return []
    return [
        Finding(
            "overtraining",
            "severe" if fall >= SEVERE_FELL else "warning",
            f"Accuracy fell from {best.accuracy:.1%} after epoch {best.epoch} to {last.accuracy:.1%} after epoch "
            f"{last.epoch}; the last point is the figure of the run, the best on test is never reported.",
            (
                Fact("fall", fall, "%", f"≥ {max(FELL, noise):.1%}"),
                Fact("two deviations of such a difference", noise, "%"),
                Fact("negative log-likelihood", f"{best.nll:.3g} → {last.nll:.3g}"),
            ),
            "Training went on beyond the point at which the clients' models fuse best. Choosing that point by the "
            "test images would make them training data.",
            (
                f"Let the learning rate fall to 0: {again(run.record.spec, {'schedule': 'cosine'})}",
                f"Settle on fewer epochs beforehand, by the clients' own held-out images: "
                f"{again(run.record.spec, {'epochs': best.epoch, 'validation': 0.1})}",
            ),
            (),
            (best.epoch, last.epoch),
            (Series("accuracy", tuple(p.epoch for p in curve), tuple(p.accuracy for p in curve)),),
        )
    ]


def idle_epochs(run: Run) -> list[Finding]:
    """The run begins with evaluation points no better than naming one class, and ends well."""
    curve, total = run.record.curve, sum(run.tests)
    if len(curve) < 3 or not total:
        return []
    chance = max(run.tests) / total
    noise = 2 * math.sqrt(chance * (1 - chance) / total)
    idle = list(takewhile(lambda point: point.accuracy <= chance + noise, curve))
    last = curve[-1]
    if len(idle) < 2 or idle[-1].epoch < IDLE * last.epoch or last.accuracy < LEARNED * chance:
        return []
    end = idle[-1].epoch
    return [
        Finding(
            "idle_epochs",
            "warning",
            f"The first {end} of {last.epoch} epochs taught nothing that fuses: accuracy {idle[-1].accuracy:.1%} "
            f"after epoch {end}, where naming one class gives {chance:.1%}.",
            (
                Fact("share of the run", end / last.epoch, "%", f"≥ {IDLE:.0%}"),
                Fact("naming one class, with two deviations", chance + noise, "%", "not exceeded"),
                Fact("accuracy at the end", last.accuracy, "%", f"≥ {LEARNED:g} × naming one class"),
            ),
            "Whatever these epochs minimised, the classes were not in it, or not yet in a form that the fusion can "
            "use. In the notes it was a first stage of contrast against foreign features alone, washed out by the "
            "next.",
            (
                "Compare with a loss that classifies from the first step on, on the same clients: "
                + again(run.record.spec, {"method": "fafi"}),
            ),
            (),
            (1, end),
            (Series("accuracy", tuple(p.epoch for p in curve), tuple(p.accuracy for p in curve)),),
        )
    ]
