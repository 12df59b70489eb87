"""What a client tells about its training: one row for each epoch, of numbers that were really used."""

import math

import torch
from torch import Tensor

from fedshot.local.losses import mean_cosine
from fedshot.local.objective import Objective
from fedshot.local.weighting import WeightReport
from fedshot.models import Classifier, prototypes_of

Row = dict[str, float | int | None]
_LAST = ("lambda_raw", "lambda_effective", "attenuation", "base_scale", "sigma_local", "sigma_align")


class EpochLog:
    """Collects 0-dim tensors over the steps of an epoch without waiting for the device until the row is asked for.

    Losses, norms and the predicted equilibrium are means over the epoch's steps; lambdas, sigmas and the attenuation
    are those of its last step.
    """

    def __init__(self, model: Classifier, objective: Objective) -> None:
        self._model = model
        self._anchors = objective.anchors
        self._sums: Tensor | None = None
        self._names: list[str] = []
        self._report: WeightReport | None = None
        self._steps = 0

    def add(
        self, base: Tensor, align: Tensor, terms: dict[str, Tensor], report: WeightReport, norm: Tensor, factor: Tensor
    ) -> None:
        """Takes in one step."""
        values = {
            "base_loss": base,
            "align_loss": align,
            **{f"loss_{name}": value for name, value in terms.items()},
            "lambda_equilibrium": report.lambda_equilibrium,
            "grad_norm": norm,
            "clip_factor": factor,
        }
        stacked = torch.stack([value.detach().float() for value in values.values()])
        self._names = list(values)
        self._sums = stacked if self._sums is None else self._sums + stacked
        self._report = report
        self._steps += 1

    def row(self, client: int, epoch: int) -> Row:
        """The epoch as plain numbers; None for what is not finite or does not exist in this method."""
        if self._sums is None or self._report is None:
            raise RuntimeError("an epoch without steps has no telemetry")
        means = dict(zip(self._names, (self._sums / self._steps).tolist(), strict=True))
        last = {name: getattr(self._report, name).item() for name in _LAST}
        numbers = {**means, **last, **self._geometry()}
        return {"client": client, "epoch": epoch, **{k: v if math.isfinite(v) else None for k, v in numbers.items()}}

    @torch.no_grad()
    def _geometry(self) -> dict[str, float]:
        prototypes = prototypes_of(self._model)
        if prototypes is None:
            return {"cos_prototype_anchor": math.nan, "prototype_norm": math.nan}
        norm = prototypes.norm(dim=1).mean().item()
        if self._anchors is None:
            return {"cos_prototype_anchor": math.nan, "prototype_norm": norm}
        anchors = self._anchors.to(prototypes.device)
        return {"cos_prototype_anchor": mean_cosine(prototypes, anchors).item(), "prototype_norm": norm}
