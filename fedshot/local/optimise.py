"""Parameter groups with their own learning rate and gradient clip, and the optimiser over them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedshot.local.schedules import learning_rate
from fedshot.local.weighting import Weighting
from fedshot.models import Classifier
from fedshot.spec import Spec


@dataclass(frozen=True)
class Group:
    """Parameters that share a learning rate, a weight decay and a gradient clip."""

    name: str
    parameters: tuple[nn.Parameter, ...]
    peak_rate: float
    rate: Tensor  # 0-dim, on the device: what the optimiser reads at each step
    scheduled: bool  # whether the run's schedule moves the rate
    weight_decay: float
    clip: float


def parameter_groups(model: Classifier, weighting: Weighting, spec: Spec, device: torch.device) -> list[Group]:
    """Encoder, head, and the parameters of a learned weighting (at a constant rate of its own, never decayed)."""

    def group(name: str, module: nn.Module, rate: float, scheduled: bool, decay: float, clip: float) -> Group:
        zero = torch.zeros((), device=device)
        return Group(name, tuple(module.parameters()), rate, zero, scheduled, decay, clip)

    groups = [
        group("encoder", model.encoder, spec.lr, True, spec.weight_decay, spec.clip),
        group("head", model.head, spec.lr, True, spec.weight_decay, spec.clip),
        group("weighting", weighting, weighting.learning_rate, False, 0.0, weighting.clip),
    ]
    return [g for g in groups if g.parameters]


def make_optimiser(groups: list[Group], spec: Spec) -> torch.optim.Optimizer:
    """SGD with momentum or AdamW over all groups, reading each group's rate from its tensor."""
    options = [{"params": list(g.parameters), "lr": g.rate, "weight_decay": g.weight_decay} for g in groups]
    if spec.optimizer == "adamw":
        on_gpu = groups[0].rate.is_cuda
        return torch.optim.AdamW(options, betas=(spec.momentum, 0.999), fused=True, capturable=on_gpu)
    return torch.optim.SGD(options, lr=spec.lr, momentum=spec.momentum, fused=True)


def set_rates(groups: list[Group], progress: Tensor, spec: Spec) -> None:
    """Writes the learning rate of this step into every group's tensor."""
    factor = learning_rate(progress, spec.schedule, spec.warmup)
    for group in groups:
        group.rate.copy_(group.peak_rate * factor) if group.scheduled else group.rate.fill_(group.peak_rate)


def clip_gradients(groups: list[Group], spec: Spec) -> tuple[Tensor, Tensor]:
    """Scales gradients down to the norm limits; returns the encoder's norm and the factor that it got.

    The encoder's factor depends on its own gradient alone. The head gets the same factor, so that the two move in step
    as under one norm, and is clipped again if that leaves it too long: a large lambda, which acts on the prototypes,
    cannot slow the encoder down. A learned weighting is clipped by itself. `clip_scope = "joint"` takes one norm over
    all of them, as the published code does. A limit of 0 means no clipping.
    """
    gradients = {group.name: [p.grad for p in group.parameters if p.grad is not None] for group in groups}
    if spec.clip_scope == "joint":
        return _clip([g for group in gradients.values() for g in group], spec.clip)
    norm, factor = _clip(gradients["encoder"], spec.clip)
    if gradients["head"]:  # an objective may leave the head alone
        torch._foreach_mul_(gradients["head"], factor)
    for group in groups[1:]:
        if gradients[group.name]:
            _clip(gradients[group.name], group.clip)
    return norm, factor


def _clip(gradients: list[Tensor], limit: float) -> tuple[Tensor, Tensor]:
    norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
    if not limit:
        return norm, torch.ones_like(norm)
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(gradients, factor)
    return norm, factor
