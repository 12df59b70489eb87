"""Who holds what: images with several holders, classes with none."""

from fedshot.explain.commands import again
from fedshot.explain.finding import Fact, Finding, listed
from fedshot.explain.run import Run

SEVERE_OVERLAP = 0.05  # beyond one image in twenty, α and the number of clients no longer mean what they say


def clients_overlap(run: Run) -> list[Finding]:
    """Images that two or more clients hold."""
    overlap = run.division.overlap
    if not overlap:
        return []
    spec = run.record.spec
    return [
        Finding(
            "clients_overlap",
            "severe" if overlap >= SEVERE_OVERLAP else "warning",
            f"{overlap:.0%} of the images that were handed out have two or more holders (recipe "
            f"{run.division.recipe}): the clients are not disjoint.",
            (
                Fact("share with two or more holders", overlap, "%", f"> 0, severe from {SEVERE_OVERLAP:.0%}"),
                Fact("images handed out, counted for each holder", sum(run.division.sizes)),
                Fact("α", spec.alpha),
            ),
            "A recipe that draws every client's images from the whole class without removing them gives several "
            "clients the same images: the data grow with α, the skew is milder than α says, and figures do not "
            "compare with disjoint ones.",
            (f"Divide without overlap: {again(spec, {'recipe': 'dirichlet'})}",)
            if not spec.partition_file
            else ("Make the index lists of the partition file disjoint, or use a recipe: `fedshot partition --help`.",),
        )
    ]


def class_nobody_holds(run: Run) -> list[Finding]:
    """Classes of the task without a single training image among the clients."""
    columns = [sum(column) for column in zip(*run.class_counts, strict=True)]
    nobody = [c for c, count in enumerate(columns) if count == 0]
    if not nobody or run.division.unknown:
        return []
    asked = sum(run.tests[c] for c in nobody)
    share = asked / max(sum(run.tests), 1)
    spec = run.record.spec
    return [
        Finding(
            "class_nobody_holds",
            "severe" if asked else "note",
            f"Nobody holds {listed(nobody, 'class')}, and {share:.0%} of the test images belong there: no accuracy "
            f"above {1 - share:.0%} is possible but by luck.",
            (
                Fact("classes without a training image", len(nobody), "", "≥ 1"),
                Fact("test images of these classes", asked),
                Fact("bound of the accuracy", 1 - share, "%"),
                Fact("training images that nobody holds", run.division.unassigned),
            ),
            "The partition gave these classes to no client, so no model has seen one.",
            (
                "Hand out all classes in the partition file, or leave it out and use a recipe: `fedshot partition "
                "--help`.",
            )
            if spec.partition_file
            else (f"Divide anew: {again(spec, {'recipe': 'dirichlet', 'seed': spec.seed + 1})}",),
        )
    ]
