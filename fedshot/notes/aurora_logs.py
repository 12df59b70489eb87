"""The logs behind AURORA: what V7 and V14 gain on a hundred classes, and that V14's lambda is a schedule."""

from collections.abc import Mapping
from statistics import fmean

from fedshot.notes.note import Note, Runs, Scale, Seen, Table, at_same_place, specs_at, told_setting
from fedshot.spec import Spec

SEEDS = (42, 114514, 350234)
ACCURACY: Mapping[str, tuple[float, ...]] = {  # after the last round, by seed
    "V4": (41.70, 43.92, 41.24),
    "V7": (46.73, 47.31, 44.81),
    "V14": (48.63, 49.45, 48.41),
}
METHODS = {"V4": "fafi", "V7": "etf:weight=20", "V14": "aurora:start.maximum=20"}
ROUNDS = 10
LAMBDA = (12.45, 11.24, 9.88, 8.53, 7.15, 5.88, 4.81, 3.79, 3.02, 2.45)  # V14, seed 42, client 0, after each round
FULL = told_setting("cifar100", 10 * ROUNDS, range(10, 10 * ROUNDS + 1, 10))


def runs(scale: Scale) -> dict[str, Spec]:
    found = specs_at(scale, FULL, METHODS, "cifar100:images=5000")
    less = {"data": "digits:images=450"} if scale == "tiny" else {}  # nine runs
    return {
        _label(name, seed): spec.model_copy(update={"seed": seed, **less})
        for name, spec in found.items()
        for seed in SEEDS
    }


def tables(found: Runs) -> list[Table]:
    accuracies = tuple(
        (name, str(seed), f"{told:.2f}", f"{_reached(found, name, seed):.2f}")
        for name, by_seed in ACCURACY.items()
        for seed, told in zip(SEEDS, by_seed, strict=True)
    )
    client = found[_label("V14", SEEDS[0])].clients[0]
    lambdas = tuple(
        (str(number), f"{told:.2f}", f"{at_same_place(client, number, ROUNDS)['lambda_raw']:.2f}")
        for number, told in enumerate(LAMBDA)
    )
    return [
        Table("accuracy in percent at the end", ("method", "seed", "log", "here"), accuracies),
        Table(f"learned lambda of V14, seed {SEEDS[0]}, client 0, after a round", ("round", "log", "here"), lambdas),
    ]


def phenomena(found: Runs) -> list[Seen]:
    seen = []
    for better, worse in (("V7", "V4"), ("V14", "V7")):
        gains = [_reached(found, better, seed) - _reached(found, worse, seed) for seed in SEEDS]
        told = fmean(a - b for a, b in zip(ACCURACY[better], ACCURACY[worse], strict=True))
        measured = f"{', '.join(f'{gain:+.1f}' for gain in gains)} points, mean {fmean(gains):+.1f} (log {told:+.1f})"
        seen.append(Seen(f"{better} is ahead of {worse} with every seed", measured, min(gains) > 0))
    falls = {seed: _fall(found, seed) for seed in SEEDS}
    share, apart = falls[SEEDS[0]], max(falls.values()) / min(falls.values())
    return [
        *seen,
        Seen(
            "V14's λ falls over the run as in the log",
            f"to {share:.2f} of its first value (log {LAMBDA[-1] / LAMBDA[0]:.2f})",
            share < 0.5,
        ),
        Seen(
            "that fall is a schedule, not something that a federation discovers: all seeds have nearly the same",
            f"the share that is left differs by ×{apart:.2f} between seeds",
            apart < 1.25,
        ),
    ]


def _fall(found: Runs, seed: int) -> float:
    """What is left of λ in the last round, of what it was in the first: the mean over clients."""
    clients = found[_label("V14", seed)].clients.values()
    return fmean(rows[-1]["lambda_raw"] / at_same_place(rows, 0, ROUNDS)["lambda_raw"] for rows in clients)


def _reached(found: Runs, name: str, seed: int) -> float:
    return 100 * found[_label(name, seed)].record.final.accuracy


def _label(name: str, seed: int) -> str:
    return f"{name} seed {seed}"


AURORA_LOGS = Note(
    "aurora-logs",
    "The logs behind AURORA",
    "CIFAR-100, α = 0.05, five clients, three seeds, 10 rounds of 10 epochs",
    runs,
    tables,
    phenomena,
    round_epochs=10,
    drawn_by_sample=("V4", "V7"),
)
