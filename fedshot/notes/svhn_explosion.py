"""Explosions on SVHN: attenuating the data term makes lambda grow without bound, and what stops it."""

from collections.abc import Mapping

from fedshot.notes.note import Note, Runs, Scale, Seen, Table, at_same_place, specs_at, times, told_setting
from fedshot.spec import Spec

ROUNDS = 50
TOLD: Mapping[int, tuple[float, str]] = {  # λ of client 3 of V12, and the accuracy, after a round
    0: (12.04, "25.9%"),
    9: (65.22, "45.4%"),
    14: (204_658.41, "49.5%"),
    15: (482_429.48, "37.5%"),
    19: (1_516_252.51, "26.3%"),
    29: (4_147_315.36, "18.8%"),
}
EXPLODES = 10.0  # how far V12's λ grows at least
GAMMA = 1e-5
FULL = told_setting("svhn", ROUNDS, sorted({*(number + 1 for number in TOLD), *range(5, ROUNDS + 1, 5)}))


def runs(scale: Scale) -> dict[str, Spec]:
    methods = {"V12": "etf_decoupled", "V13": f"etf_regularised:gamma={GAMMA}", "V14": "aurora"}
    return specs_at(scale, FULL, methods, "svhn:images=5000")


def tables(found: Runs) -> list[Table]:
    run = found["V12"]
    points = [{"epoch": p.epoch, "accuracy": p.accuracy} for p in run.record.curve]
    rows = []
    for number, (told, accuracy) in TOLD.items():
        here = at_same_place(run.longest, number, ROUNDS)
        point = min(points, key=lambda p: abs(p["epoch"] - here["epoch"]))
        rows.append((str(number), f"{told:,.1f}", f"{here['lambda_raw']:,.1f}", accuracy, f"{point['accuracy']:.1%}"))
    columns = ("round", "λ, note", "λ, here", "accuracy, note", "accuracy, here")
    ends = tuple(
        (
            label,
            f"{r.record.final.accuracy:.2%}",
            f"{r.longest[0]['lambda_raw']:,.1f}",
            f"{r.longest[-1]['lambda_raw']:,.1f}",
        )
        for label, r in found.items()
    )
    return [
        Table("V12 over the rounds: λ of the client with most steps (the note: client 3)", columns, tuple(rows)),
        Table("the three forms, one seed", ("method", "accuracy", "λ at first", "λ at last"), ends),
    ]


def phenomena(found: Runs) -> list[Seen]:
    growth = {label: run.longest[-1]["lambda_raw"] / run.longest[0]["lambda_raw"] for label, run in found.items()}
    held = max(row["lambda_raw"] * 2 * GAMMA / row["base_loss"] for row in found["V13"].longest)
    low = min(row["lambda_raw"] for row in found["V12"].longest)
    explosion = found["V12"].longest[-1]["lambda_raw"] / low
    return [
        Seen("V12: λ explodes", f"{times(explosion)} from its lowest to its last value", explosion >= EXPLODES),
        Seen("V13: λ stays under L_base / 2γ", f"at most {held:.2%} of it", held < 1),
        Seen("V14: λ decays", f"{times(growth['V14'])} from the first to the last epoch", growth["V14"] < 1),
    ]


SVHN_EXPLOSION = Note(
    "svhn-explosion",
    "Explosions on SVHN",
    "SVHN, α = 0.05, five clients, 50 rounds of one epoch",
    runs,
    tables,
    phenomena,
    normalisation="twice",
)
