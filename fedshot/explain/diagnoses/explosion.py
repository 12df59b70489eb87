"""λ that grows without bound: which σ moved, where its equilibrium went, and on which term the attenuation stands.

Formulas: docs/weighting.md. λ = σ_ℓ²/σ_a², s is the attenuation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from fedshot.explain.commands import again
from fedshot.explain.diagnoses.lambdas import FEWEST_EPOCHS, GROWTH, Numbers, learned, path
from fedshot.explain.finding import Fact, Finding
from fedshot.explain.run import Run

SEVERE_GROWTH = 100.0  # two decades: V12 on digits then has its prototypes at their anchors (cosine 0.99, 976-fold)

_FORMS: dict[str, Callable[[Numbers], float]] = {
    "L_b/(s·L_a)": lambda row: row["base_loss"] / (row["attenuation"] * row["align_loss"]),
    "L_b/L_a": lambda row: row["base_loss"] / row["align_loss"],
    "s·L_b/L_a": lambda row: row["attenuation"] * row["base_loss"] / row["align_loss"],
}


@dataclass(frozen=True)
class _Explosion:
    rows: list[Numbers]  # of the client
    low: Numbers  # the epoch of its smallest λ
    last: Numbers

    @property
    def growth(self) -> float:
        return self.last["lambda_effective"] / self.low["lambda_effective"]

    @property
    def drift(self) -> float:
        return self.last["lambda_equilibrium"] / self.low["lambda_equilibrium"]

    @property
    def by_align(self) -> float:
        """The share that the fall of σ_align² has in the growth of log λ, before any schedule; 0 without growth."""
        grown = math.log(self.last["lambda_raw"] / self.low["lambda_raw"])
        return 2 * math.log(self.low["sigma_align"] / self.last["sigma_align"]) / grown if grown > 0 else 0.0

    @property
    def facts(self) -> tuple[Fact, ...]:
        low, last = self.low, self.last
        moved = {"σ_local": "sigma_local", "σ_align": "sigma_align", "attenuation s": "attenuation"}
        moved |= {"alignment loss L_a": "align_loss", "base loss L_b": "base_loss"}
        return (
            Fact("growth of λ", self.growth, "×", f"≥ {GROWTH:g}"),
            Fact("growth of the predicted equilibrium", self.drift, "×", f"≥ {GROWTH:g}"),
            Fact("λ that the weights saw, at its smallest", low["lambda_effective"]),
            Fact("λ that the weights saw, at the end", last["lambda_effective"]),
            Fact("predicted equilibrium, at the end", last["lambda_equilibrium"]),
            Fact("share of the growth that is σ_align's", self.by_align, "%"),
            *(Fact(name, f"{low[key]:.3g} → {last[key]:.3g}") for name, key in moved.items()),
        )


def lambda_explosion(run: Run) -> list[Finding]:
    """λ and its own equilibrium both grow tenfold or more after λ's smallest value."""
    found: dict[int, _Explosion] = {}
    for client, telemetry in run.rows.items():
        rows = learned(telemetry)
        if len(rows) >= FEWEST_EPOCHS:
            case = _Explosion(rows, min(rows, key=lambda row: row["lambda_effective"]), rows[-1])
            if case.growth >= GROWTH and case.drift >= GROWTH:
                found[client] = case
    if not found:
        return []
    worst = max(found, key=lambda client: found[client].growth)
    case = found[worst]
    low, last, spec = case.low, case.last, run.record.spec
    bound = {"method": "etf_regularised", "gamma": float(f"{last['base_loss'] / 100:.1g}")}
    sigma = "σ_align fell" if case.by_align >= 0.5 else "σ_local rose"
    return [
        Finding(
            "lambda_explosion",
            "severe" if case.growth >= SEVERE_GROWTH else "warning",
            f"λ grew {case.growth:.0f}-fold in client {worst} ({low['lambda_effective']:.3g} in epoch "
            f"{low['epoch']:.0f}, {last['lambda_effective']:.3g} in epoch {last['epoch']:.0f}) because {sigma}.",
            case.facts,
            _why_it_explodes(run, case),
            (
                "Attenuate the log prior instead of the data term, λ* = s·L_b/L_a: "
                + again(spec, {"method": "aurora"}),
                f"Bound λ: γ/σ_a² holds it below L_b/(2γ), so γ = L_b/100 keeps it near 50: {again(spec, bound)}",
            ),
            tuple(found),
            (int(low["epoch"]), int(last["epoch"])),
            (
                path(f"λ, client {worst}", case.rows, "lambda_effective"),
                path("predicted", case.rows, "lambda_equilibrium"),
            ),
        )
    ]


def _why_it_explodes(run: Run, case: _Explosion) -> str:
    form = equilibrium_form(case.rows)
    said = ["λ = σ_ℓ²/σ_a² follows its equilibrium, and the equilibrium left."]
    if form == "L_b/(s·L_a)":
        said.append(
            "The attenuation s stands on the wrong term: with s·L_a/(2σ_a²) + ½ log σ_a² the variance settles at "
            "σ_a² = s·L_a, so λ* = L_b/(s·L_a) grows without bound as s falls."
        )
    if case.last["align_loss"] < case.low["align_loss"] / 2:
        said.append("The large λ pulled L_a itself down, which raises its equilibrium again.")
    gamma = run.record.spec.options.get("gamma")
    if isinstance(gamma, float) and gamma > 0:
        said.append(
            f"The penalty γ = {gamma:g} bounds λ only at L_b/(2γ) = {case.last['base_loss'] / (2 * gamma):.3g}."
        )
    if run.record.spec.clip_scope == "joint":
        said.append("With clip_scope=joint a large λ also shrinks the encoder's step.")
    return " ".join(said)


def equilibrium_form(rows: Sequence[Numbers]) -> str | None:
    """Which closed form the predicted equilibrium has, from the epochs in which the forms differ; None if none fits."""
    clear = [row for row in rows if 0.1 <= row["attenuation"] <= 0.7]
    if not clear:
        return None
    distance = {
        name: median(abs(math.log(row["lambda_equilibrium"] / form(row))) for row in clear)
        for name, form in _FORMS.items()
    }
    best = min(distance, key=lambda name: distance[name])
    return best if distance[best] <= math.log(1.5) else None  # s is that of an epoch's end, the prediction its mean
