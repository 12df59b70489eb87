"""What an upload says about the geometry of a client: prototypes, class means, and how far neural collapse has gone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedshot.explain.run import Run

ENOUGH = 5  # images of a class: the mean of fewer lies apart from the others by chance


@dataclass(frozen=True)
class Geometry:
    """Of the classes of which a client holds enough images, from what it uploaded (Papyan et al. 2020).

    Σ_W is the covariance within classes over all images, Σ_B that of the class means, each class counted once: a client
    with nearly all of its images in one class would have little variance between classes however far apart they lie.
    between: tr Σ_B / tr (Σ_W + Σ_B), the share of the variance that lies between classes if all are equally frequent.
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
    """None where the upload lacks a section, or the client holds enough images of fewer than two classes."""
    upload = run.upload(client)
    if upload is None or not {"class_means", "moments"} <= upload.sections:
        return None
    counts = torch.tensor(upload.class_counts, dtype=torch.float64)
    held, known = counts > 0, counts >= ENOUGH
    if known.sum() < 2:
        return None
    means = upload.section("class_means")["means"].double()  # (C, d)
    moments = upload.section("moments")
    away = (means - moments["mean"].double()).square().sum(1)[held]
    total, by_images = moments["std"].double().square().sum(), (counts[held] * away).sum() / counts.sum()
    within = max(float(total - by_images), 0.0)  # tr Σ_W
    centred = means[known] - means[known].mean(0)
    lengths = centred.norm(dim=1)
    between = float(lengths.square().mean())  # tr Σ_B
    if between <= 0:
        return Geometry(int(known.sum()), 0.0, float("inf"), 0.0, 0.0, None)
    unit = centred / lengths[:, None].clamp(min=1e-12)
    classes = len(unit)
    pairs = (unit @ unit.T)[~torch.eye(classes, dtype=torch.bool)]
    prototypes = prototypes_in(run, client)
    nc3 = None
    if prototypes is not None:
        own = prototypes.double()[known]
        nc3 = float(torch.nn.functional.cosine_similarity(own - own.mean(0), centred, dim=1).mean())
    return Geometry(
        classes,
        between / (within + between),
        within / between,
        float(lengths.std(correction=0) / lengths.mean()),
        float((pairs + 1 / (classes - 1)).abs().mean()),
        nc3,
    )
