"""One gradient norm over everything: a large λ on the prototypes shrinks the encoder's step."""

import math
from itertools import pairwise

from fedshot.explain.commands import again
from fedshot.explain.diagnoses.geometry import prototypes_in
from fedshot.explain.finding import Fact, Finding, Series
from fedshot.explain.run import Run, complete

COUPLED = 0.5  # the clip factor is at most half of what the other gradients alone would have got
SEVERE_COUPLED, SEVERE_FACTOR = 0.2, 0.1  # and the encoder's steps are a tenth of their gradients or less
UNCERTAIN = 0.14  # √(2 · 1 %): λ over an epoch is known to a per cent or so, and a smaller rest is not resolved


def clipping_couples(run: Run) -> list[Finding]:
    """With clip_scope=joint, most of the clipped norm is λ∇L_a, whose length follows from L_a in closed form."""
    spec = run.record.spec
    if spec.clip_scope != "joint" or not spec.clip or spec.options.get("alignment.measure") not in ("all", "present"):
        return []
    strongest = {
        client: min(cases, key=lambda c: c["shrunk"]) for client in run.rows if (cases := _clipped(run, client))
    }
    found = {client: case for client, case in strongest.items() if case["shrunk"] <= COUPLED}
    if not found:
        return []
    worst = min(found, key=lambda client: found[client]["shrunk"])
    case = found[worst]
    shown = complete(run.rows[worst], "clip_factor", "lambda_effective")
    epochs = tuple(int(row["epoch"]) for row in shown)
    severe = case["shrunk"] <= SEVERE_COUPLED and case["clip_factor"] <= SEVERE_FACTOR
    return [
        Finding(
            "clipping_couples",
            "severe" if severe else "warning",
            f"Joint clipping lets λ slow the encoder: in epoch {case['epoch']:.0f} of client {worst} the clip factor "
            f"was {case['clip_factor']:.2g} at λ = {case['weight']:.3g}; without the alignment's gradient "
            f"it would have been {case['alone']:.2g} or more.",
            (
                Fact("clip factor against that without λ∇L_a", case["shrunk"], "×", f"≤ {COUPLED:g}"),
                Fact("length of λ∇L_a = 2λ√(L_a/(C·d))", case["pull"]),
                Fact("gradient norm of everything", case["grad_norm"]),
                Fact("clip limit", spec.clip),
            ),
            "The alignment term involves the prototypes alone, but clip_scope=joint divides all gradients by one "
            "norm, which holds λ∇L_a: the encoder's step shrinks by about limit/‖λ∇L_a‖ whatever its own gradient is.",
            (f"Clip encoder, head and variances apart: {again(spec, {'clip_scope': 'group'})}",),
            tuple(found),
            (int(case["epoch"]), int(case["epoch"])),
            (
                Series(f"clip factor, client {worst}", epochs, tuple(row["clip_factor"] for row in shown), log=True),
                Series("λ", epochs, tuple(row["lambda_effective"] for row in shown)),
            ),
        )
    ]


def _clipped(run: Run, client: int) -> list[dict[str, float]]:
    """The epochs of a client in which λ acted, with the alignment's part of the norm; none without its upload."""
    rows = complete(run.rows[client], "lambda_effective", "loss_alignment", "grad_norm", "clip_factor")
    rows = [row for row in rows if min(row.values()) > 0]
    prototypes = prototypes_in(run, client) if rows else None
    if prototypes is None:
        return []
    limit, found = run.record.spec.clip, []
    for before, row in pairwise(rows):
        # λ is that of an epoch's last step, the norms are means over it
        weight = (before["lambda_effective"] + row["lambda_effective"]) / 2
        # MSE over all classes has a gradient of length 2 sqrt(L_a / (C d)); over those of a batch it is longer
        pull = 2 * weight * math.sqrt(row["loss_alignment"] / prototypes.numel())
        rest = math.sqrt(max(row["grad_norm"] ** 2 - pull**2, (UNCERTAIN * row["grad_norm"]) ** 2))
        alone = min(1.0, limit / rest)
        found.append({**row, "weight": weight, "pull": pull, "alone": alone, "shrunk": row["clip_factor"] / alone})
    return found
