"""What an upload says about the geometry of a client: prototypes, class means, and how far neural collapse has gone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedshot.explain.run import Run


@dataclass(frozen=True)
class Geometry:
    """Of one client's held classes, from class means, moments, class counts and prototypes (Papyan et al. 2020).

    between: tr Σ_B / tr Σ_T, the share of the features' variance that lies between classes.
    nc1: tr Σ_W / tr Σ_B, the variability within classes (a ratio of traces where Papyan has tr Σ_W Σ_B⁺ / C).
    nc2_norm: deviation of the lengths of centred class means over their mean; 0 when equal.
    nc2_angle: mean |cos + 1/(C_k − 1)| over pairs of centred class means; 0 for a simplex ETF.
    nc3: mean cosine of centred prototypes and centred class means; 1 for self-duality, None without prototypes.
    NC4 needs features of single images, which no upload has: the client tells it in its telemetry.
    """

    classes: int
    between: float
    nc1: float
    nc2_norm: float
    nc2_angle: float
    nc3: float | None


def prototypes_in(run: Run, client: int) -> Tensor | None:
    """The prototypes that a client sent, (C, d); None where its head has none or the upload is gone.

    Those of a class in several turns come side by side, as its features do.
    """
    upload = run.upload(client)
    if upload is None:
        return None
    head, classes = upload.section("weights"), len(upload.class_counts)
    found = (t for name, t in head.items() if name.endswith("prototypes") and t.ndim == 2)
    return next((prototypes.reshape(classes, -1) for prototypes in found), None)


def geometry(run: Run, client: int) -> Geometry | None:
    """None where the upload lacks a section, or the client holds fewer than two classes or images enough for each."""
    upload = run.upload(client)
    if upload is None or not {"class_means", "moments"} <= upload.sections:
        return None
    counts = torch.tensor(upload.class_counts, dtype=torch.float64)
    held = counts > 0
    if held.sum() < 2 or counts.sum() < 2 * held.sum():
        return None
    means = upload.section("class_means")["means"].double()[held]  # (C_k, d)
    weights = counts[held] / counts.sum()
    moments = upload.section("moments")
    total = float(moments["std"].double().square().sum())  # tr Σ_T
    centre = moments["mean"].double()
    between = float((weights[:, None] * (means - centre).square()).sum())  # tr Σ_B
    if total <= 0 or between <= 0:
        return Geometry(int(held.sum()), 0.0, float("inf"), 0.0, 0.0, None)
    centred = means - means.mean(0)
    lengths = centred.norm(dim=1)
    unit = centred / lengths[:, None].clamp(min=1e-12)
    classes = len(unit)
    pairs = (unit @ unit.T)[~torch.eye(classes, dtype=torch.bool)]
    prototypes = prototypes_in(run, client)
    nc3 = None
    if prototypes is not None:
        own = prototypes.double()[held]
        nc3 = float(torch.nn.functional.cosine_similarity(own - own.mean(0), centred, dim=1).mean())
    return Geometry(
        classes,
        between / total,
        max(total - between, 0.0) / between,
        float(lengths.std(correction=0) / lengths.mean()),
        float((pairs + 1 / (classes - 1)).abs().mean()),
        nc3,
    )
