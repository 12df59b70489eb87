"""Features and prototypes that coincide, and how far neural collapse has gone, from what the uploads hold."""

from collections.abc import Collection

import torch

from fedshot.explain.commands import command
from fedshot.explain.diagnoses.geometry import ENOUGH, Geometry, geometry, prototypes_in
from fedshot.explain.finding import Fact, Finding, Severity, listed
from fedshot.explain.run import Run, complete

NO_CLASSES = 0.05  # less than a twentieth of the features' variance lies between classes: they carry no class
SAME = 0.95  # two logits of a unit feature then differ by at most √(2 − 2·0.95) = 0.32 of the prototypes' length
SEVERE_PART = 0.1  # of all images, with clients whose knowledge is lost
COLLAPSED = 0.1  # variability within classes a tenth of that between them


def feature_collapse(run: Run) -> list[Finding]:
    """The features of a client hardly differ between its classes."""
    found = {k: g for k, g in _geometries(run).items() if g.between < NO_CLASSES}
    if not found:
        return []
    worst = min(found, key=lambda client: found[client].between)
    return [
        Finding(
            "feature_collapse",
            _severity(run, found),
            f"The features of {listed([*found], 'client')} hardly tell classes apart: in client {worst} "
            f"{found[worst].between:.1%} of their variance lies between its {found[worst].classes} classes.",
            (
                Fact("tr Σ_B / tr (Σ_W + Σ_B)", found[worst].between, "%", f"< {NO_CLASSES:.0%}"),
                Fact(f"classes of {ENOUGH} images or more", found[worst].classes),
            ),
            "Σ_W, the covariance within classes, is from the moments, class means and counts of the upload, Σ_B from "
            "the class means, each counted once, so that a client with most of its images in one class is not taken "
            "for one without features. With the class means in one place the head has nothing to work on.",
            ("Look at that client's losses, and leave it out: " + command("fuse", run.path, "--without", worst),),
            tuple(found),
        )
    ]


def _severity(run: Run, clients: Collection[int]) -> Severity:
    """By the share of the images that these clients hold: with one client of a hundred little is lost."""
    held = {client.id: client.samples for client in run.record.clients}
    return "severe" if sum(held[k] for k in clients) >= SEVERE_PART * sum(held.values()) else "warning"


def prototype_collapse(run: Run) -> list[Finding]:
    """Two classes that a client holds have prototypes of the same direction."""
    found: dict[int, tuple[float, int, int]] = {}
    for client in run.fused:
        prototypes = prototypes_in(run, client)
        held = [c for c, count in enumerate(run.class_counts[client]) if count] if run.class_counts else []
        if prototypes is None or len(held) < 2:
            continue
        unit = torch.nn.functional.normalize(prototypes[held].double(), dim=1)
        cosines = (unit @ unit.T).fill_diagonal_(-1)
        place = int(cosines.argmax())
        if float(cosines.max()) >= SAME:
            found[client] = (float(cosines.max()), held[place // len(held)], held[place % len(held)])
    if not found:
        return []
    worst = max(found, key=lambda client: found[client][0])
    cosine, one, other = found[worst]
    return [
        Finding(
            "prototype_collapse",
            _severity(run, found),
            f"Prototypes have collapsed in {listed([*found], 'client')}: those of classes {one} and {other} in client "
            f"{worst} are at cosine {cosine:.3f}.",
            (Fact("largest cosine of two held classes", cosine, "", f"≥ {SAME:g}"),),
            "The logits of the two classes are f·p_c with nearly the same p_c: only their lengths tell them apart.",
            (
                "Prototypes that start apart and are pushed apart: look at what pulls them together, such as anchors "
                "from a file.",
            ),
            tuple(found),
        )
    ]


def neural_collapse(run: Run) -> list[Finding]:
    """Within most clients the features of a class have become one point."""
    known = _geometries(run)
    found = {client: g for client, g in known.items() if g.nc1 <= COLLAPSED and g.between >= NO_CLASSES}
    if not found or 2 * len(found) <= len(known):
        return []
    shown = min(found, key=lambda client: found[client].nc1)
    g, nc4 = found[shown], _agreement(run, shown)
    return [
        Finding(
            "neural_collapse",
            "note",
            f"Neural collapse within {len(found)} of {len(known)} clients: in client {shown} the variability within "
            f"classes is {g.nc1:.2g} of that between them.",
            (
                Fact("NC1, tr Σ_W / tr Σ_B", g.nc1, "", f"≤ {COLLAPSED:g}"),
                Fact("NC2, spread of the lengths of class means", g.nc2_norm),
                Fact(f"NC2, mean distance of cosines from −1/(C−1) = {-1 / (g.classes - 1):.3g}", g.nc2_angle),
                *([] if g.nc3 is None else [Fact("NC3, cosine of prototypes and class means", g.nc3)]),
                *([] if nc4 is None else [Fact("NC4, own images decided as by the nearest class mean", nc4, "%")]),
                Fact(f"classes of {ENOUGH} images or more", g.classes),
            ),
            "In the terminal phase of training features of a class tend to their mean and the means to a simplex ETF "
            "(Papyan et al. 2020) of the client's own classes: every client collapses to another geometry, about "
            "which the others know nothing.",
            (
                "Compare the rules that do not mix feature spaces: "
                + command("fuse", run.path, "-f", "class_weighted", "-f", "probabilities"),
            ),
            tuple(found),
        )
    ]


def _agreement(run: Run, client: int) -> float | None:
    """What the client said at the end of its training."""
    said = complete(run.rows.get(client, ()), "nearest_mean_agreement")
    return said[-1]["nearest_mean_agreement"] if said else None


def _geometries(run: Run) -> dict[int, Geometry]:
    found = {client: geometry(run, client) for client in run.fused}
    return {client: g for client, g in found.items() if g is not None}
