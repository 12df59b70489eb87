"""Terms of the loss that pull against each other, from the cosines of their gradients."""

from dataclasses import dataclass
from statistics import median

from fedshot.explain.commands import again
from fedshot.explain.diagnoses.lambdas import FEWEST_EPOCHS, Numbers, path
from fedshot.explain.finding import Fact, Finding
from fedshot.explain.run import Run, complete

CONFLICT = 0.3  # medians of healthy runs of V4, V7 to V14 and V20 lie above −0.2, single batches above −0.4
LOST = 1.1  # times the first epoch's value at which a loss counts as having risen


@dataclass(frozen=True)
class Pair:
    """Two losses that telemetry compares: the column of the cosine, where it is taken, and each by name and column."""

    cosine: str
    place: str
    one: str
    other: str
    columns: tuple[str, str]


_PAIRS = (
    Pair("gradient_cosine_head", "prototypes", "alignment loss", "base loss", ("align_loss", "base_loss")),
    Pair("gradient_cosine_features", "features", "alignment loss", "base loss", ("align_loss", "base_loss")),
    Pair(
        "gradient_cosine_contrast", "features", "contrast", "classification", ("loss_contrast", "loss_classification")
    ),
)


def gradient_conflict(run: Run) -> list[Finding]:
    """Two losses whose gradients point against each other in the second half of the run."""
    findings = []
    for pair in _PAIRS:
        known = {client: _acting(run, client, pair) for client in run.rows}
        found = {client: rows for client, rows in known.items() if rows and _typical(rows, pair) <= -CONFLICT}
        if found:
            findings.append(_told(run, pair, found))
    return findings


def _acting(run: Run, client: int, pair: Pair) -> list[Numbers]:
    """The epochs in which both losses moved the weights; none if these are too few."""
    rows = complete(run.rows[client], pair.cosine, *pair.columns, "lambda_effective")
    if "align_loss" in pair.columns:
        rows = [row for row in rows if row["lambda_effective"] > 0]
    return rows if len(rows) >= FEWEST_EPOCHS else []


def _typical(rows: list[Numbers], pair: Pair) -> float:
    return median(row[pair.cosine] for row in rows[len(rows) // 2 :])


def _told(run: Run, pair: Pair, found: dict[int, list[Numbers]]) -> Finding:
    worst = min(found, key=lambda client: _typical(found[client], pair))
    rows = found[worst]
    first, last = rows[0], rows[-1]
    names = dict(zip(pair.columns, (pair.one, pair.other), strict=True))
    lost = [name for name in pair.columns if last[name] > LOST * first[name] > 0]
    end = f"the {names[lost[0]]} rose from {first[lost[0]]:.3g} to {last[lost[0]]:.3g}" if lost else "neither loss rose"
    return Finding(
        "gradient_conflict",
        "warning" if lost else "note",
        f"The {pair.one} works against the {pair.other}: at the {pair.place} of client {worst} the cosine of their "
        f"gradients is {_typical(rows, pair):.2f} in the second half of the run, and {end}; {len(found)} of "
        f"{len(run.rows)} clients.",
        (
            Fact("median cosine of the gradients, second half", _typical(rows, pair), "", f"≤ −{CONFLICT:g}"),
            Fact("cosine, first and last epoch", f"{first[pair.cosine]:.2f} → {last[pair.cosine]:.2f}"),
            *(
                Fact(name, f"{first[c]:.3g} → {last[c]:.3g}", "", f"risen beyond {LOST:g} ×")
                for c, name in names.items()
            ),
            *([Fact("λ, last epoch", last["lambda_effective"])] if "align_loss" in pair.columns else []),
        ),
        "A step down one loss is a step up the other. Where they hold each other, ∇L_1 = −w∇L_2 and the cosine is −1: "
        "the weight alone decides how much of each is learned. "
        + ("One of them has lost." if lost else "Both fell all the same, so this is a price, not a failure."),
        _remedies(run, pair),
        tuple(found),
        (int(first["epoch"]), int(last["epoch"])),
        (path(f"cosine, client {worst}", rows, pair.cosine, log=False),),
    )


def _remedies(run: Run, pair: Pair) -> tuple[str, ...]:
    spec = run.record.spec
    if "align_loss" not in pair.columns:
        return (f"Give the two a head each, on the same clients: {again(spec, {'method': 'dual_head'})}",)
    weight = next((key for key in ("alignment.weight", "weight") if key in spec.options), None)
    without = again(spec, {weight: 0.0} if weight else {"method": "fafi"})
    return (f"See what the alignment is worth, on the same clients without it: {without}",)
