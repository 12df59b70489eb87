"""Why V11 fails: a learned weight takes back what an outer schedule takes away."""

import math

from fedshot.notes.note import (
    Note,
    Rows,
    Runs,
    Scale,
    Seen,
    Table,
    accuracy_table,
    at_same_place,
    specs_at,
    times,
    told_setting,
)
from fedshot.spec import Spec

ACCURACY = {"V11 linear": "38.35%", "V11 cosine": "38.51%", "V7": "40.41%", "V9": "39.83%"}
ROUNDS = 10
LAMBDA = {  # of client 0 and of client 1 after each round
    "V11 linear": (
        (11.9, 12.1, 13.0, 14.7, 16.4, 19.3, 22.5, 30.1, 42.0, 84.0),
        (12.3, 13.4, 14.0, 15.7, 17.4, 21.3, 25.4, 34.0, 47.8, 93.0),
    ),
    "V11 cosine": (
        (11.9, 11.2, 11.5, 12.9, 15.1, 19.3, 26.0, 43.8, 87.9, 342.8),
        (12.3, 12.4, 12.5, 13.8, 16.0, 21.4, 29.3, 49.5, 100.1, 380.2),
    ),
}
SEVERAL_FOLD = 3.0  # how far λ grows at least
LITTLE = 0.25  # of what a does, on a logarithmic scale, may be left in a·λ
MIDDLE = (0.25, 0.85)  # of the run: before it λ looks for its place, after it the sigmas cannot follow any more
FULL = told_setting("cifar100", 10 * ROUNDS, range(10, 10 * ROUNDS + 1, 10))


def runs(scale: Scale) -> dict[str, Spec]:
    name = "etf_annealed_uncertainty"
    learned = {"V11 linear": f"{name}:anneal=linear", "V11 cosine": f"{name}:anneal=cosine"}
    methods = {**learned, "V7": "etf", "V9": "etf_entropy"} if scale != "tiny" else learned
    return specs_at(scale, FULL, methods, "cifar100:images=5000")


def tables(found: Runs) -> list[Table]:
    rows = []
    for number in range(ROUNDS):
        cells = [str(number)]
        for label, told in LAMBDA.items():
            ours = [at_same_place(rows_of, number, ROUNDS)["lambda_raw"] for rows_of in _two(found, label)]
            theirs = [client[number] for client in told]
            cells += [" / ".join(f"{value:.1f}" for value in pair) for pair in (theirs, ours)]
        rows.append(tuple(cells))
    columns = ("round", "linear, note", "linear, here", "cosine, note", "cosine, here")
    return [accuracy_table(ACCURACY, found), Table("learned lambda of two clients", columns, tuple(rows))]


def phenomena(found: Runs) -> list[Seen]:
    return [seen for label in LAMBDA for seen in _taken_back(label, found[label].longest)]


def _taken_back(label: str, rows: Rows) -> list[Seen]:
    middle = [row for row in rows if MIDDLE[0] <= row["epoch"] / len(rows) <= MIDDLE[1]]
    raw, used = ([row[key] for row in middle] for key in ("lambda_raw", "lambda_effective"))
    fall = middle[0]["attenuation"] / middle[-1]["attenuation"]
    growth, spread = raw[-1] / raw[0], max(used) / min(used)
    left = math.log(spread) / math.log(fall)
    return [
        Seen(
            f"{label}: λ grows while a falls", f"a falls {times(fall)}, λ grows {times(growth)}", growth > SEVERAL_FOLD
        ),
        Seen(
            f"{label}: what reaches the weights, a·λ, hardly changes", f"it stays within {times(spread)}", left < LITTLE
        ),
    ]


def _two(found: Runs, label: str) -> list[Rows]:
    return [rows for _, rows in sorted(found[label].clients.items())[:2]]


WHY_V11_FAILS = Note(
    "why-v11-fails",
    "Why V11 fails",
    "CIFAR-100, α = 0.05, five clients, 10 rounds of 10 epochs",
    runs,
    tables,
    phenomena,
    round_epochs=10,
    normalisation="twice",
)
