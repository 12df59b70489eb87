"""What a client tells about its training: one row for each epoch, of numbers that were really used."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from fedshot.local.conflict import COSINES
from fedshot.local.losses import mean_cosine
from fedshot.local.objective import Objective
from fedshot.local.weighting import WeightReport
from fedshot.models import Classifier, prototypes_of

Row = dict[str, float | int | None]
_LAST = ("lambda_raw", "lambda_effective", "attenuation", "base_scale", "sigma_local", "sigma_align")
_AT_END = (*COSINES, "cos_prototype_anchor", "prototype_norm", "finite")
MOST_EPOCHS = 16  # that are kept on the device, to be fetched at once


class EpochLog:
    """Collects 0-dim tensors over the steps of some epochs, in place, without waiting for the device.

    Losses, norms and the predicted equilibrium are means over the epoch's steps; lambdas, sigmas and the attenuation
    are those of its last step, cosines of gradients those of its first, where these were compared. Its tensors keep
    their place from the first step on, so that `add`, `compare` and `close` can be captured in a graph and replayed.
    """

    def __init__(self, model: Classifier, objective: Objective) -> None:
        self._model = model
        self._anchors = objective.anchors
        self._names: tuple[str, ...] = ()
        self._sums = self._last = self.closed = torch.empty(0)
        device = next(model.parameters()).device
        self._cosines = torch.full((len(COSINES),), math.nan, device=device)
        self._next = torch.zeros(1, dtype=torch.int64, device=device)  # row of `closed`

    def begin(self) -> None:
        """The next epochs are written from the first row of `closed` on, `MOST_EPOCHS` at most."""
        self._next.zero_()

    def add(
        self,
        base: Tensor,
        align: Tensor,
        terms: dict[str, Tensor],
        report: WeightReport,
        norm: Tensor,
        factor: Tensor,
        told: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> None:
        """Takes in one step; `told` are the objective's reports."""
        values = {
            "base_loss": base,
            "align_loss": align,
            **{f"loss_{name}": value for name, value in terms.items()},
            "lambda_equilibrium": report.lambda_equilibrium,
            "grad_norm": norm,
            "clip_factor": factor,
            **told,
        }
        stacked = torch.stack([value.detach().float() for value in values.values()])
        if not self._names:
            self._names = tuple(values)
            self._sums = torch.zeros_like(stacked)
            self._last = stacked.new_zeros(len(_LAST))
            self.closed = stacked.new_zeros(MOST_EPOCHS, len(values) + len(_LAST) + len(_AT_END))
        self._sums += stacked
        self._last.copy_(torch.stack([getattr(report, name).detach().float() for name in _LAST]))

    def compare(self, cosines: Sequence[Tensor]) -> None:
        """Takes in the cosines between the gradients of one step, for the whole epoch."""
        self._cosines.copy_(torch.stack([*cosines]))

    @torch.no_grad()
    def close(self) -> None:
        """Writes the epoch to its row of `closed`, as sums and last values, and starts the next one."""
        finite = is_finite(self._model).float()[None]
        row = torch.cat([self._sums, self._last, self._cosines, *self._geometry(), finite])
        self.closed.index_copy_(0, self._next, row[None])
        self._next += 1
        self._sums.zero_()
        self._cosines.fill_(math.nan)

    def row(self, closed: Sequence[float], client: int, epoch: int, steps: int) -> Row:
        """A row of `closed` by the names of its numbers; None for what is not finite or does not exist.

        An epoch that ended with a model that is not finite has no base loss.
        """
        numbers = dict(zip((*self._names, *_LAST, *_AT_END), closed, strict=True))
        means = {name: numbers[name] / steps for name in self._names}
        if not numbers.pop("finite"):
            means["base_loss"] = math.nan
        found = {**numbers, **means}
        return {"client": client, "epoch": epoch, **{k: v if math.isfinite(v) else None for k, v in found.items()}}

    def _geometry(self) -> tuple[Tensor, Tensor]:
        prototypes, absent = prototypes_of(self._model), torch.full_like(self._sums[:1], math.nan)
        if prototypes is None:
            return absent, absent
        norm = prototypes.norm(dim=1).mean()[None]
        return (absent if self._anchors is None else mean_cosine(prototypes, self._anchors)[None]), norm


def is_finite(model: Classifier) -> Tensor:
    """Whether every parameter and buffer of the model is a number, as a 0-dim tensor on its device."""
    numbers = [tensor for tensor in model.state_dict().values() if tensor.is_floating_point()]
    return torch.stack(torch._foreach_norm(numbers, math.inf)).isfinite().all()  # a kernel for many tensors at once
