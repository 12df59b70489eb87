"""The public feature bank in two stages: epochs of contrast against foreign features alone teach nothing."""

from collections.abc import Mapping
from typing import Any

from fedshot.notes.note import Note, Repeated, Runs, Scale, Seen, Table
from fedshot.spec import Spec, make_spec

EPOCHS = 5  # of a round, the first of which is stage 1
ROUNDS = (0, 1, 2, 5)
TOLD: Mapping[float, tuple[tuple[float, float], ...]] = {  # V4 and V6 after each of these rounds, in percent
    0.5: ((67.23, 57.68), (76.70, 71.27), (81.13, 76.92), (86.79, 84.45)),
    0.3: ((65.16, 47.65), (74.79, 60.79), (79.09, 66.91), (85.62, 75.96)),
    0.1: ((61.00, 45.38), (71.24, 53.19), (76.98, 59.88), (83.52, 70.01)),
    0.05: ((61.37, 31.25), (72.25, 38.67), (77.12, 42.28), (83.46, 50.13)),
}
METHODS = {"V4": "fafi", "V6": "two_stage_bank", "V6 sound": "two_stage_bank_sound"}
GUESSING = 2.0  # times the accuracy of a guess, beyond which something was learned
SETTINGS: Mapping[Scale, dict[str, Any]] = {
    "tiny": {"data": "digits", "epochs": 2 * EPOCHS, "batch_size": 32},
    "small": {"data": "cifar10:images=5000", "epochs": 3 * EPOCHS, "batch_size": 32, "encoder": "cnn"},
    "full": {"data": "cifar10", "epochs": 6 * EPOCHS, "encoder": "resnet18"},
}


def runs(scale: Scale) -> dict[str, Spec]:
    setting = SETTINGS[scale]
    points = (1, *(EPOCHS * (number + 1) for number in ROUNDS if EPOCHS * (number + 1) <= setting["epochs"]))
    shared = {"clients": 5, "public": "0.1", "evaluate_at": points, "seed": 1, **setting}
    return {
        _label(name, alpha): make_spec(method=method, alpha=alpha, **shared)
        for alpha in (TOLD if scale == "full" else (0.5, 0.05))
        for name, method in METHODS.items()
    }


def tables(found: Runs) -> list[Table]:
    rows = []
    for alpha, told in TOLD.items():
        if _label("V4", alpha) not in found:
            continue
        for number, (v4, v6) in zip(ROUNDS, told, strict=True):
            here = [_after(found[_label(name, alpha)], EPOCHS * (number + 1)) for name in METHODS]
            if None not in here:
                ours = (f"{100 * (value or 0):.2f}" for value in here)
                rows.append((f"{alpha}", str(number), f"{v4:.2f}", f"{v6:.2f}", *ours))
    columns = ("α", "round", "V4, note", "V6, note", "V4, here", "V6, here", "V6 sound, here")
    return [Table("accuracy in percent after a round of five epochs, one seed", columns, tuple(rows))]


def phenomena(found: Runs) -> list[Seen]:
    alphas = sorted({run.record.spec.alpha for run in found.values()})
    first = {label: _after(run, 1) or 0.0 for label, run in found.items()}
    classes = len(next(iter(found.values())).record.final.per_class_accuracy)
    v6 = max(first[_label("V6", alpha)] for alpha in alphas)
    v4 = min(first[_label("V4", alpha)] for alpha in alphas)
    stages = [row["stage_one"] for row in found[_label("V6", alphas[0])].longest]
    gaps = {alpha: _gap(found, alpha) for alpha in alphas}
    told = ", ".join(f"{gap:+.1%} at α = {alpha}" for alpha, gap in gaps.items())
    return [
        Seen(
            "after an epoch of stage 1 the model guesses",
            f"V6 at most {v6:.1%} after the first epoch, V4 at least {v4:.1%}",
            v6 < GUESSING / classes < v4,
        ),
        Seen(
            "stage 1 comes again in every round: it is no pre-training",
            f"{sum(stages):.0f} of {len(stages)} epochs, the first of every {EPOCHS}",
            sum(stages) == len(stages) / EPOCHS and len(stages) > EPOCHS,
        ),
        Seen("V6 is worse than V4 after the first round", told, all(gap < 0 for gap in gaps.values())),
        Seen(
            "the more skewed the clients, the larger the loss (the note's V4 probably had nearly alike clients)",
            told,
            gaps[alphas[0]] < gaps[alphas[-1]],
        ),
    ]


def _gap(found: Runs, alpha: float) -> float:
    """V6 less V4 after the first round."""
    v4, v6 = (_after(found[_label(name, alpha)], EPOCHS) or 0.0 for name in ("V4", "V6"))
    return v6 - v4


def _after(run: Repeated, epoch: int) -> float | None:
    return next((point.accuracy for point in run.record.curve if point.epoch == epoch), None)


def _label(name: str, alpha: float) -> str:
    return f"{name} α={alpha}"


PUBLIC_FEATURE_BANK = Note(
    "public-feature-bank",
    "Public feature bank, in two stages",
    "CIFAR-10, α from 0.5 to 0.05, rounds of five epochs, a tenth of the training images public",
    runs,
    tables,
    phenomena,
    round_epochs=EPOCHS,
)
