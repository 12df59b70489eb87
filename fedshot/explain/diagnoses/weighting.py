"""The weight of the alignment loss: cancelled annealing, tracking, delay, a hidden cut of the learning rate.

Formulas and equilibria: docs/weighting.md. In all of them λ = σ_ℓ²/σ_a², and s or a is the attenuation.
"""

import math
from statistics import median

from fedshot.explain.commands import again
from fedshot.explain.diagnoses.lambdas import FEWEST_EPOCHS, GROWTH, Numbers, learned, path
from fedshot.explain.finding import Fact, Finding, Series, listed
from fedshot.explain.run import Run, complete

ANNEALED = 3.0  # times that a has to fall over epochs with a steady a·λ; a given weight has a·λ fall as much as a does
STEADY = 1.5  # a·λ may differ by this ratio and count as steady while a falls threefold or more
TRACKS = 0.15  # median distance of λ from L_b/L_a in the second half of the run; the losses' own noise is about 0.1
LAG = 3.0  # times that λ may differ from its equilibrium before it counts as late
CUT = 0.5  # a factor of two is the usual step in a search for a learning rate
SEVERE_CUT = 0.1  # a tenth is another experiment

_SUPCON = (
    " L_b holds SupCon, whose floor is about the log of the number of positives, so λ follows batch size and classes."
)


def annealing_cancelled(run: Run) -> list[Finding]:
    """a falls threefold or more, a·λ stays where it is (V11)."""
    found = {client: window for client, rows in run.rows.items() if (window := _cancelled(learned(rows)))}
    if not found:
        return []
    worst = max(found, key=lambda client: _fall(found[client]))
    rows = found[worst]
    first, last = rows[0], rows[-1]
    used = [row["lambda_effective"] for row in rows]
    return [
        Finding(
            "annealing_cancelled",
            "warning",
            f"The annealing is cancelled: in client {worst} a fell from {first['attenuation']:.2f} to "
            f"{last['attenuation']:.2f}, λ rose from {first['lambda_raw']:.3g} to {last['lambda_raw']:.3g}, and a·λ "
            f"stayed between {min(used):.3g} and {max(used):.3g}.",
            (
                Fact("fall of a", _fall(rows), "×", f"≥ {ANNEALED:g}"),
                Fact("largest to smallest a·λ", max(used) / min(used), "×", f"≤ {STEADY:g}"),
                Fact("growth of λ", last["lambda_raw"] / first["lambda_raw"], "×"),
                Fact("L_b/L_a at the end", last["base_loss"] / last["align_loss"]),
            ),
            "a multiplies the alignment term that σ_a is learned from as well: σ_a² = a·L_a, so λ* = L_b/(a·L_a) and "
            "a·λ* = L_b/L_a whatever a is.",
            (
                f"Anneal a given weight: {again(run.record.spec, {'method': 'etf'})}",
                "Let the attenuation act on the log prior, λ* = s·L_b/L_a: "
                f"{again(run.record.spec, {'method': 'aurora'})}",
            ),
            tuple(found),
            (int(first["epoch"]), int(last["epoch"])),
            (path("λ", rows, "lambda_raw"), path("a·λ", rows, "lambda_effective"), path("a", rows, "attenuation")),
        )
    ]


def _cancelled(rows: list[Numbers]) -> list[Numbers] | None:
    """The epochs over which a fell furthest while a·λ stood still; None if it fell too little for a finding.

    At first λ still leaves its start, and at the end a falls faster than any σ can follow, so not all epochs count.
    """
    if any(abs(row["lambda_effective"] / (row["attenuation"] * row["lambda_raw"]) - 1) > 0.01 for row in rows):
        return None  # the schedule does not stand outside of λ
    best: list[Numbers] = []
    for first in range(len(rows)):
        last, low, high = first, math.inf, 0.0
        while last < len(rows):
            used = rows[last]["lambda_effective"]
            low, high = min(low, used), max(high, used)
            if high > STEADY * low:
                break
            last += 1
        if not best or _fall(rows[first:last]) > _fall(best):
            best = rows[first:last]
    return best if len(best) >= FEWEST_EPOCHS and _fall(best) >= ANNEALED else None


def _fall(rows: list[Numbers]) -> float:
    return rows[0]["attenuation"] / rows[-1]["attenuation"]


def lambda_tracks_losses(run: Run) -> list[Finding]:
    """In the second half of the run λ is L_b/L_a, which carries nothing that the losses do not (V10)."""
    found: dict[int, tuple[float, list[Numbers]]] = {}
    for client, telemetry in run.rows.items():
        rows = learned(telemetry)
        half = rows[len(rows) // 2 :]
        if len(half) < FEWEST_EPOCHS or any(row["attenuation"] != 1 for row in half):
            continue
        off = median(abs(row["lambda_raw"] * row["align_loss"] / row["base_loss"] - 1) for row in half)
        if off <= TRACKS:
            found[client] = (off, half)
    if not found:
        return []
    best = min(found, key=lambda client: found[client][0])
    off, half = found[best]
    raw, ratio = ([row["lambda_raw"] for row in half], [row["base_loss"] / row["align_loss"] for row in half])
    align = [row["align_loss"] for row in half]
    return [
        Finding(
            "lambda_tracks_losses",
            "warning",
            f"The learned λ is the ratio of the losses: in client {best} λ = {raw[-1]:.3g} and L_b/L_a = "
            f"{ratio[-1]:.3g} in the last epoch, {off:.1%} apart over the second half; {len(found)} of "
            f"{len(run.rows)} clients.",
            (
                Fact("median distance of λ from L_b/L_a", off, "%", f"≤ {TRACKS:.0%}"),
                Fact("λ, last epoch", raw[-1]),
                Fact("L_b/L_a, last epoch", ratio[-1]),
                Fact("base loss L_b, last epoch", half[-1]["base_loss"]),
                Fact("L_a over the second half", f"{min(align):.3g} to {max(align):.3g}"),
            ),
            "The variances settle at σ_ℓ² = L_b and σ_a² = L_a, so λ* = L_b/L_a: no trade-off is discovered."
            + (_SUPCON if complete(run.rows[best], "loss_contrast") else ""),
            (
                "Compare with a weight that is given: "
                f"{again(run.record.spec, {'method': 'etf', 'weight': float(f'{raw[-1]:.2g}')})}",
            ),
            tuple(found),
            (int(half[0]["epoch"]), int(half[-1]["epoch"])),
            (
                path(f"λ, client {best}", half, "lambda_raw", log=False),
                Series("L_b/L_a", tuple(int(row["epoch"]) for row in half), tuple(ratio)),
            ),
        )
    ]


def lambda_lags(run: Run) -> list[Finding]:
    """λ stays several times away from an equilibrium that does not run away: its value is a delay, not a choice."""
    found: dict[int, list[Numbers]] = {}
    for client, telemetry in run.rows.items():
        rows = learned(telemetry)
        half = rows[len(rows) // 2 :]
        if len(half) >= FEWEST_EPOCHS and not _runs_away(rows):
            away = median(abs(math.log(row["lambda_raw"] / row["lambda_equilibrium"])) for row in half)
            if away >= math.log(LAG):
                found[client] = rows
    if not found:
        return []
    worst = max(found, key=lambda client: abs(math.log(_ratio(found[client][-1]))))
    rows, last = found[worst], found[worst][-1]
    side = "above" if _ratio(last) > 1 else "below"
    return [
        Finding(
            "lambda_lags",
            "note",
            f"λ lags behind its equilibrium in {listed([*found], 'client')}: client {worst} ends at "
            f"{last['lambda_raw']:.3g}, {side} the {last['lambda_equilibrium']:.3g} at which its variances would "
            "stand still.",
            (
                Fact("λ, last epoch", last["lambda_raw"]),
                Fact("predicted equilibrium, mean of the last epoch", last["lambda_equilibrium"]),
                Fact("ratio", _ratio(last), "×", f"beyond {LAG:g} in the second half"),
            ),
            "The log variances move with a time constant of about 2(1 − momentum)/(σ learning rate) steps in V12 to "
            "V14; losses and schedule move the equilibrium faster, so the value is a delay, not a choice.",
            (
                "Let the variances learn faster: "
                + again(run.record.spec, {"sigma.learning_rate": 10 * _sigma_rate(run)}),
            ),
            tuple(found),
            (int(rows[0]["epoch"]), int(last["epoch"])),
            (path(f"λ, client {worst}", rows, "lambda_raw"), path("predicted", rows, "lambda_equilibrium")),
        )
    ]


def _runs_away(rows: list[Numbers]) -> bool:
    """Whether the equilibrium itself leaves: then λ follows it, and `lambda_explosion` or the schedule says why."""
    predicted = [row["lambda_equilibrium"] for row in rows]
    return predicted[-1] >= GROWTH * min(predicted)


def _ratio(row: Numbers) -> float:
    return row["lambda_raw"] / row["lambda_equilibrium"]


def _sigma_rate(run: Run) -> float:
    rate = run.record.spec.options.get("sigma.learning_rate")
    return rate if isinstance(rate, float) and rate > 0 else 0.005


def hidden_rate_cut(run: Run) -> list[Finding]:
    """The base loss reaches the weights scaled far below 1 (V10 as first written)."""
    found = {}
    for client, telemetry in run.rows.items():
        rows = complete(telemetry, "base_scale")
        if rows and median(row["base_scale"] for row in rows) < CUT:
            found[client] = rows
    if not found:
        return []
    worst = min(found, key=lambda client: found[client][-1]["base_scale"])
    rows = found[worst]
    last, lr = rows[-1]["base_scale"], run.record.spec.lr
    clip = complete(run.rows[worst], "clip_factor")
    return [
        Finding(
            "hidden_rate_cut",
            "severe" if last < SEVERE_CUT else "warning",
            f"The weighting cuts the learning rate: the gradient of the base loss was multiplied by {last:.3g} in "
            f"client {worst} at the end, so lr {lr:g} acted as {lr * last:.2g}.",
            (
                Fact("base_scale, last epoch", last, "", f"median < {CUT:g}"),
                Fact("learning rate asked for", lr),
                Fact("learning rate that acted, where nothing was clipped", lr * last),
                *([Fact("clip_factor, last epoch", clip[-1]["clip_factor"])] if clip else []),
            ),
            "The loss is L_b/(2σ_ℓ²) + …, so the weights see ∇L_b/(2σ_ℓ²), and σ_ℓ² settles at L_b. Clipping hides it "
            "as long as the scaled gradient is still longer than the limit (clip_factor below 1).",
            (f"Use the form rescaled by sg(2σ_ℓ²): {again(run.record.spec, {'form': 'rescaled'})}",)
            if "form" in run.record.spec.options
            else ("Multiply the weighted loss by sg(2σ_ℓ²), or raise lr by 1/base_scale.",),
            tuple(found),
            (int(rows[0]["epoch"]), int(rows[-1]["epoch"])),
            (path(f"base_scale, client {worst}", rows, "base_scale", log=False),),
        )
    ]
