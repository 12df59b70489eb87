"""Settings that are there to repeat published figures, and make a figure mean something else."""

from fedshot.explain.commands import again
from fedshot.explain.finding import Fact, Finding
from fedshot.explain.run import Run
from fedshot.spec import Spec


def published_habits(run: Run) -> list[Finding]:
    """A run that was trained with habits of published code, each asked for by name."""
    spec = run.record.spec
    said = {
        "normalisation": {
            "views": "augmented images are normalised, test images are not",
            "twice": "augmented images are normalised twice, test images once",
        }.get(spec.normalisation),
        "draws": "one draw of views serves a whole batch" if spec.draws == "batch" else None,
        "momentum_epochs": _anew(spec.momentum_epochs),
    }
    habits = {name: words for name, words in said.items() if words}
    if not habits:
        return []
    fields = Spec.model_fields
    alike = {"augmentation": spec.augmentation} if spec.normalisation == "twice" else {}  # it may have been asked for
    sound = spec.model_copy(update={name: fields[name].default for name in habits})
    return [
        Finding(
            "published_habits",
            "severe" if "normalisation" in habits else "warning",
            f"Trained with habits of published code: {'; '.join(habits.values())}.",
            tuple(Fact(name, str(getattr(spec, name)), "", _unusual(fields[name].default)) for name in habits),
            "Where test images pass through another normalisation than the images that the model learned from, "
            "the figure is that of a model on foreign images; views that a whole batch shares differ less from each "
            "other than views of each image; an optimiser that is made anew every round forgets where it was going.",
            (f"Train soundly, and compare: {again(sound, alike)}",),
        )
    ]


def _anew(epochs: int | None) -> str | None:
    if epochs is None:
        return None
    return f"momentum begins anew every {'epoch' if epochs == 1 else f'{epochs} epochs'}"


def _unusual(default: object) -> str:
    return f"not {default}" if default else "given"
