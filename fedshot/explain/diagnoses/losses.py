"""Terms of the loss that are the same number, or no number at all."""

from itertools import combinations

from fedshot.explain.diagnoses.geometry import prototypes_in
from fedshot.explain.finding import Fact, Finding
from fedshot.explain.run import Row, Run

FEWEST_ROWS = 3  # two terms may agree once by chance
EQUAL = 1e-5  # relative; float32 has 7 digits, and a mean over steps loses one or two


def equal_terms(run: Run) -> list[Finding]:
    """Two terms with the same value in every epoch of every client."""
    rows = _all_rows(run)
    findings = []
    for one, other in combinations(_terms(rows), 2):
        pairs = [(row[one] or 0.0, row[other] or 0.0) for row in rows]
        largest = max(abs(a - b) / max(abs(a), abs(b), 1e-30) for a, b in pairs)
        if largest <= EQUAL and any(a for a, _ in pairs):
            findings.append(_equal(run, one, other, largest, len(rows)))
    return findings


def _equal(run: Run, one: str, other: str, largest: float, rows: int) -> Finding:
    fafi = {one, other} == {"loss_classification", "loss_prototype_feature"}
    return Finding(
        "equal_terms",
        "note",
        f"{_word(one)} and {_word(other)} are the same number in all {rows} epochs of all clients: the loss counts it "
        "twice.",
        (Fact("largest relative difference", largest, "", f"≤ {EQUAL:g}"), Fact("epochs of clients compared", rows)),
        "The prototype–feature term CE(f·Pᵀ/τ, y) at τ = 1 is the classification loss CE(f·Pᵀ, y): FAFI minimises "
        "2·CE + SupCon + …"
        if fafi
        else "Both terms compute the same value from the same batch.",
        ("Read the loss as twice this term; drop one of the two in a variant of your own (docs/tutorial.md).",),
        tuple(run.rows),
    )


def dead_term(run: Run) -> list[Finding]:
    """A term that is exactly 0 in every epoch of every client."""
    rows = _all_rows(run)
    return [_dead(run, name, len(rows)) for name in _terms(rows) if all(row[name] == 0 for row in rows)]


def _dead(run: Run, name: str, rows: int) -> Finding:
    facts = [Fact("epochs of clients in which it is exactly 0", rows, "", "all")]
    cause = "A term at 0 throughout adds nothing to the loss, and a term at its minimum has no gradient."
    margin = _margin(run) if name == "loss_prototype_prototype" else None
    if margin is not None:
        facts.append(Fact("smallest p_c·p_c − max p_c·p_k", margin, "nats"))
        cause = (
            "Each prototype has to pick itself among all by CE(P·Pᵀ): ‖p_c‖² beats every p_c·p_k by so many nats that "
            "the softmax is exactly 1 in float32, loss and gradient exactly 0."
        )
    return Finding(
        "dead_term",
        "note",
        f"The term {_word(name)} is exactly 0 in all {rows} epochs of all clients: it is numerically dead.",
        tuple(facts),
        cause,
        ("Leave it out of a variant of your own (docs/tutorial.md), or raise its temperature.",),
        tuple(run.rows),
    )


def _margin(run: Run) -> float | None:
    margins = []
    for client in run.rows:
        prototypes = prototypes_in(run, client)
        if prototypes is not None and len(prototypes) > 1:
            gram = prototypes.double() @ prototypes.double().T
            own = gram.diagonal().clone()
            gram.fill_diagonal_(float("-inf"))
            margins.append(float((own - gram.amax(1)).min()))
    return min(margins) if margins else None


def _all_rows(run: Run) -> list[Row]:
    """Of all clients; an epoch that diverged has no losses to compare."""
    return [row for rows in run.rows.values() for row in rows if row.get("base_loss") is not None]


def _terms(rows: list[Row]) -> list[str]:
    """The terms that every row has; none where there are too few rows."""
    if len(rows) < FEWEST_ROWS:
        return []
    return [name for name in rows[0] if name.startswith("loss_") and all(row.get(name) is not None for row in rows)]


def _word(name: str) -> str:
    return name.removeprefix("loss_")
