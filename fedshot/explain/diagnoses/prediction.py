"""What the fused model answers: classes it never names, classes it favours, confidence, routing."""

import math
import statistics

from fedshot.explain.commands import again, command
from fedshot.explain.diagnoses.head import takes_the_mean
from fedshot.explain.finding import Fact, Finding, listed
from fedshot.explain.run import Run, complete
from fedshot.record import Final
from fedshot.spec import Spec

FEWEST_TESTS = 10  # a class of fewer test images may be missed by chance
KNOWN = 0.5  # a client recognises at least half of a class: the knowledge was there
FAVOURED = 0.10  # a tenth of all test images moved to the largest client's classes
MISCALIBRATED = 0.15  # an answer said to be 85 % sure is right in 70 %: nothing downstream can use such a number
ONE_SIDED = 0.5  # of the calibration error; a smaller gap of the means is errors of both signs
ROUTING, SEVERE_ROUTING = 0.10, 0.30  # of all test images, lost in whom to believe

FEW_HELD_BACK = 10  # a deviation of nine or fewer images is off by a quarter or more, 1/√(2(M − 1))


def class_never_predicted(run: Run) -> list[Finding]:
    """Classes that a fused client holds and the fused model never names."""
    held = run.class_counts
    if not held:
        return []
    never = [
        c
        for c, tests in enumerate(run.tests)
        if tests >= FEWEST_TESTS and run.predicted[c] == 0 and any(held[k][c] for k in run.fused)
    ]
    if not never:
        return []
    best = {c: _best_holder(run, c) for c in never}
    known = [c for c in never if best[c][1] >= KNOWN]
    shown = (known or never)[0]
    who, share = best[shown]
    alone = f"; client {who} alone recognises {share:.0%} of class {shown}" if who >= 0 else ""
    return [
        Finding(
            "class_never_predicted",
            "severe" if known else "warning",
            f"The fused model never answers {listed(never, 'class')}, though clients hold "
            f"{'it' if len(never) == 1 else 'them'}{alone}.",
            (
                Fact("test images of these classes", sum(run.tests[c] for c in never), "", f"≥ {FEWEST_TESTS} a class"),
                Fact("times predicted", 0, "", "= 0"),
                *(Fact(f"class {c}", _told(run, c, best[c]), "", f"known from {KNOWN:.0%}") for c in never[:6]),
            ),
            _why_never(run, bool(known)),
            _other_rules(run),
            tuple(sorted({best[c][0] for c in known})),
        )
    ]


def _why_never(run: Run, known: bool) -> str:
    if not known:
        return f"Not even a client that holds such a class recognises {KNOWN:.0%} of it: there was little to fuse."
    rule = run.record.final.fusion
    said = f"Clients that never saw the class have learned to answer others, and the rule {rule} mixes them in."
    if takes_the_mean(run) and any(complete(rows, "prototype_norm") for rows in run.rows.values()):
        said += " The prototypes of clients that never saw it count in the mean prototype as much as its holders'."
    return said


def _best_holder(run: Run, c: int) -> tuple[int, float]:
    """The fused holder of a class that recognises most of it alone, and how much; −1 where the record does not say."""
    shares = {
        client.id: client.per_class_alone[c] or 0.0
        for client in run.record.clients
        if client.skipped is None and client.per_class_alone and run.class_counts[client.id][c]
    }
    return max(shares.items(), key=lambda item: item[1], default=(-1, 0.0))


def _told(run: Run, c: int, best: tuple[int, float]) -> str:
    held = sum(run.class_counts[k][c] for k in run.fused)
    return f"{held} images held" + (f"; client {best[0]} alone {best[1]:.0%}" if best[0] >= 0 else "")


def favours_largest_client(run: Run) -> list[Finding]:
    """More answers fall on the classes of the largest client than there are images of them."""
    counts, total = run.class_counts, sum(run.tests)
    if len(run.fused) < 2 or not counts or not total:
        return []
    largest = max(run.fused, key=lambda k: sum(counts[k]))
    holder = [max(run.fused, key=lambda k: counts[k][c]) for c in range(len(counts[0]))]
    own = [c for c in range(len(counts[0])) if counts[largest][c] and holder[c] == largest]
    answers, truth = sum(run.predicted[c] for c in own) / total, sum(run.tests[c] for c in own) / total
    if not 0 < len(own) < len(counts[0]) or answers - truth < FAVOURED:
        return []
    share = sum(counts[largest]) / max(sum(sum(counts[k]) for k in run.fused), 1)
    return [
        Finding(
            "favours_largest_client",
            "warning",
            f"The fused model favours client {largest}, the largest: {answers:.0%} of its answers are "
            f"{listed(own, 'class')}, to which {truth:.0%} of the test images belong.",
            (
                Fact("excess of answers over images", answers - truth, "%", f"≥ {FAVOURED:.0%}"),
                Fact("share of all samples that it holds", share, "%"),
                Fact("classes of which it holds most", len(own)),
            ),
            "Every client learns its own label distribution as a prior, and a rule that weighs clients by samples, "
            "n_k/n, gives the largest client's prior most say over images of classes that it never saw.",
            _other_rules(run),
            (largest,),
        )
    ]


def miscalibrated(run: Run) -> list[Finding]:
    """Confidence and accuracy far apart."""
    final = run.record.final
    if final.calibration_error < MISCALIBRATED:
        return []
    sure = final.mean_confidence
    return [
        Finding(
            "miscalibrated",
            "warning",
            f"The fused model's confidence is {100 * final.calibration_error:.0f} points away from its accuracy on "
            f"average: {_side(final)}.",
            (
                Fact("expected calibration error, 15 bins", final.calibration_error, "%", f"≥ {MISCALIBRATED:.0%}"),
                *([] if sure is None else [Fact("mean confidence − accuracy", sure - final.accuracy, "%")]),
                Fact("negative log-likelihood", final.nll, "nats"),
                Fact("negative log-likelihood of guessing, log C", math.log(max(len(run.tests), 2)), "nats"),
            ),
            "Nothing fits the softmax of fused scores to frequencies: each client was fitted to its own labels, and "
            "accuracy asks for the order of the scores alone. A negative log-likelihood above log C means answers that "
            "are sure and wrong.",
            ("See the calibration error of every rule that the uploads allow: " + command("fuse", run.path),),
        )
    ]


def _side(final: Final) -> str:
    """Which way confidence and accuracy differ; ECE is the largest that the gap of their means can be."""
    sure, right = final.mean_confidence, final.accuracy
    if sure is None:
        return f"accuracy {right:.1%}"
    numbers = f"{sure:.1%} sure and {right:.1%} right"
    if abs(sure - right) < ONE_SIDED * final.calibration_error:
        return f"over-confident on some images and under-confident on others, {numbers} over all"
    return f"{'over' if sure > right else 'under'}-confident, {numbers}"


def routing_loss(run: Run) -> list[Finding]:
    """Perfect routing recognises far more than the fusion."""
    final = run.record.final
    gap = final.oracle_routing - final.accuracy
    if gap < ROUTING:
        return []
    return [
        Finding(
            "routing_loss",
            "severe" if gap >= SEVERE_ROUTING else "warning",
            f"{gap:.0%} of the test images are lost in deciding whom to believe: the client that holds most of the "
            f"class recognises {final.oracle_routing:.1%}, the fusion {final.fusion} {final.accuracy:.1%}.",
            (
                Fact("oracle routing − accuracy", gap, "%", f"≥ {ROUTING:.0%}"),
                Fact("oracle routing", final.oracle_routing, "%"),
                Fact("accuracy", final.accuracy, "%"),
            ),
            "The knowledge is in the uploads; the fusion rule does not find it. The bound knows the true class, so a "
            "client of one class reaches it without having learned to tell classes apart: not all of the gap can be "
            "had.",
            _other_rules(run),
        )
    ]


def _goes_by_held_out(spec: Spec, rule: str) -> bool:
    """Whether a rule of ours reads what clients found on images that they held back; others are not run to be asked."""
    from fedshot.fusion import FUSIONS, make_fusion
    from fedshot.methods import METHODS, make_method
    from fedshot.own_rule import rule_of

    if rule.partition(":")[0] not in FUSIONS:
        return False
    known = spec.method in METHODS
    return (rule_of(make_method(spec.method, spec.options), rule) if known else make_fusion(rule)).held_out


def judged_by_few(run: Run) -> list[Finding]:
    """The rule goes by what clients found on images that they held back, and most of them held back a handful."""
    clients, final = [c for c in run.record.clients if c.skipped is None], run.record.final
    if not _goes_by_held_out(run.record.spec, final.fusion):
        return []
    few = [client for client in clients if client.validation_samples < FEW_HELD_BACK]
    if 2 * sum(client.samples for client in few) < sum(client.samples for client in clients):
        return []
    middle = int(statistics.median(client.validation_samples for client in clients))
    off = 1 / math.sqrt(2 * max(middle - 1, 1))
    return [
        Finding(
            "judged_by_few",
            "note",
            f"The fusion {final.fusion} goes by images that clients held back, and {len(few)} of {len(clients)} "
            f"{'has' if len(few) == 1 else 'have'} fewer than {FEW_HELD_BACK}, {middle} in the median: whom it "
            "believes is partly chance.",
            (
                Fact("clients with so few", len(few), "", "with half of all images or more"),
                Fact("images held back, median", middle, "", f"< {FEW_HELD_BACK}"),
                Fact("standard error of their deviation", off, "%"),
            ),
            "A deviation of M values is known within 1/√(2(M − 1)) of itself, a share of them within √(p(1 − p)/M): "
            "clients that judge themselves by so few are believed too much or too little at random.",
            _other_rules(run),
        )
    ]


def _tells_of_familiarity(method: str) -> bool:
    """Whether clients would; of a method in a file, which is not run here, the usual is assumed."""
    from fedshot.methods import METHODS

    return method not in METHODS or "familiarity" in METHODS[method]().statistics


def _other_rules(run: Run) -> tuple[str, ...]:
    """The fusion rules that need what the uploads have, and what a better informed one would need."""
    from fedshot.fusion import FUSIONS

    uploads = [upload for number in run.fused if (upload := run.upload(number))]
    if not uploads:
        return ("Try every rule that the uploads allow: " + command("fuse", run.path),)
    sections = frozenset.intersection(*(upload.sections for upload in uploads))
    rules = {
        name: make()
        for name, make in FUSIONS.items()
        if name in ("class_weighted", "typicality", "common", "moments", "features")
    }
    used = run.record.final.fusion.partition(":")[0]
    usable = [name for name, rule in rules.items() if name != used and set(rule.needs) <= sections]
    asked = [word for name in usable for word in ("-f", name)]
    judges = ("--on", "held-out") if run.record.held_out else ()
    said = [
        f"The uploads allow other rules without training{' (held-out images may choose)' if judges else ''}: "
        + command("fuse", run.path, *asked, *judges)
    ]
    if not run.record.spec.validation and _tells_of_familiarity(run.record.spec.method):
        said.append(
            "With images held back, clients can say what is familiar to them: "
            + again(run.record.spec, {"validation": 0.1, "fusion": "typicality"})
        )
    return tuple(said)
