"""FAFI whose features are drawn to one fixed distribution, the same for all clients."""

import math
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from fedshot.local import losses
from fedshot.local.losses.sliced_wasserstein import sorted_projections
from fedshot.local.objective import Objective, Term
from fedshot.local.references import ReferenceKind
from fedshot.local.references import directions as draw_directions
from fedshot.local.references import reference as draw_reference
from fedshot.local.weighting import Scheduled
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import FAFI_TERMS
from fedshot.options import NotNegative
from fedshot.spec import Positive


def reference_alignment(
    weight: NotNegative = 1.0,
    distance: Literal["mmd", "coral", "sliced_wasserstein"] = "mmd",
    reference: ReferenceKind = "sphere",
    size: Annotated[int, Field(ge=2)] = 256,
    directions: Positive = 128,
) -> Method:
    """FAFI + weight * distance(features of the batch, fixed reference), after Jing et al. 2023 without their exchange.

    The sphere is compared with unit features f, N(0, I / d) with h / sqrt(d).
    """

    def objective(client: Client) -> Objective:
        width, seed, device = client.model.encoder.width, client.task.seed, client.train.labels.device
        points = draw_reference(reference, size, width, seed).to(device)
        axes = draw_directions(directions, width, seed).to(device)
        quantiles = sorted_projections(points, axes)
        measure = {
            "mmd": lambda x: losses.mmd(x, points),
            "coral": lambda x: losses.coral(x, 1 / width),
            "sliced_wasserstein": lambda x: losses.sliced_wasserstein(x, axes, quantiles),
        }[distance]
        scaled = {"sphere": lambda s: s.unit, "gaussian": lambda s: s.features / math.sqrt(width)}[reference]
        return Objective(FAFI_TERMS, (Term("reference", lambda s: measure(scaled(s))),), Scheduled(weight))

    return replace(fafi(), name="reference_alignment", objective=objective)
