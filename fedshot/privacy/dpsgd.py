"""DP-SGD, Abadi et al. 2016 (arXiv:1607.00133), inside the only training loop: opacus clips, adds noise and accounts.

A step draws every image with the same probability, for itself (Poisson sampling). The unit is an image with all of its
views: the gradient of its part of the loss is clipped to `dp_clip`, the clipped ones are added, noise of deviation
`dp_noise * dp_clip` is added, and the sum is divided by the number of images that a step is expected to have.
"""

import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedshot.local.forward import inputs_of
from fedshot.local.objective import Objective
from fedshot.local.optimise import set_rates
from fedshot.local.step import Training
from fedshot.local.train import Bench
from fedshot.method import Client, Views
from fedshot.models import Classifier
from fedshot.models.turned import turn_at_random
from fedshot.privacy.randomness import Randomness, seeded
from fedshot.privacy.separable import losses
from fedshot.spec import Spec

_AT_ONCE = 64  # images whose gradients are held side by side


class NoisyOptimizer(DPOptimizer):
    """opacus' optimiser with noise from a source of ours: the client's own stream, or the operating system."""

    def __init__(self, optimiser: torch.optim.Optimizer, spec: Spec, expected: float, source: Randomness) -> None:
        super().__init__(
            optimiser, noise_multiplier=spec.dp_noise, max_grad_norm=spec.dp_clip, expected_batch_size=expected
        )
        self._source = source

    def add_noise(self) -> None:
        for parameter in self.params:
            noise = self._source.normal(parameter.shape) * (self.noise_multiplier * self.max_grad_norm)
            parameter.grad = torch.empty_like(parameter).copy_(parameter.summed_grad + noise.to(parameter))


class _Whole(nn.Module):
    """Model and weighting as one module, whose parameters are swapped together for the gradient of an image."""

    def __init__(self, model: Classifier, objective: Objective, views: Views) -> None:
        super().__init__()
        self.model, self.weighting = model, objective.weighting
        self._objective, self._views = objective, views

    def forward(self, inputs: Tensor, label: Tensor, progress: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The loss of one image from its views (V, …), and what telemetry shows of it."""
        found = losses(self.model, self._objective, inputs, label[None], self._views, progress)
        return found.loss, (found.base, found.align, *found.terms.values())


class PrivateTraining(Training):
    """A client's training whose steps are differentially private. The order of images is drawn anew in each step."""

    def __init__(self, client: Client, objective: Objective, views: Views, spec: Spec) -> None:
        super().__init__(client, objective, views, spec)
        samples = len(client.train)
        self.sample_rate = min(1.0, client.batch_size / samples)
        # sampling and noise go on with this generator where a checkpoint left it
        source = Randomness(self.shuffles if seeded(spec) else None)
        self._source, self._noisy = source, NoisyOptimizer(self.optimiser, spec, self.sample_rate * samples, source)
        self._whole = _Whole(client.model, self.objective, views)
        self._learned = {name: p for name, p in self._whole.named_parameters() if p.requires_grad}
        self._names = [term.name for term in (*objective.base, *objective.align)]

    def shuffle(self, epochs: int = 1) -> None:
        """Draws nothing: a step draws its own images."""
        self.log.begin()

    def step(self, size: int, compared: bool = False) -> None:
        """One step; how many images it has is drawn, whatever the `size` of a step without privacy would be."""
        self.progress.copy_(self.done / self.total)
        set_rates(self.groups, self.progress, self.spec)
        drawn = self._source.uniform(len(self.client.train)) <= self.sample_rate
        chosen = drawn.nonzero().flatten().to(self.labels.device)
        self._noisy.zero_grad(set_to_none=True)
        told = [self._accumulate(part) for part in chosen.split(_AT_ONCE)] if len(chosen) else [self._nothing()]
        self._noisy.add_noise()
        self._noisy.scale_grad()
        self.optimiser.step()
        self._note(torch.cat(told))
        self.done += 1

    def _accumulate(self, chosen: Tensor) -> Tensor:
        """Adds the clipped gradients of some images to the step's; their losses, (B, 2 + terms)."""
        client, views = self.client, self.views
        images, labels = self.images[chosen], self.labels[chosen]
        if views.turned:
            images, labels = turn_at_random(images, labels, client.model.get_buffer("shares"), self.draws)
        inputs = inputs_of(images, self.drawn(len(chosen)), views.plain, client.task)
        by_image = inputs.contiguous().view(-1, len(chosen), *inputs.shape[1:])  # (V, B, …)

        def of_one(parameters: dict[str, Tensor], seen: Tensor, label: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            return functional_call(self._whole, parameters, (seen, label, self.progress))

        learned = {name: p.detach() for name, p in self._learned.items()}
        gradients, told = vmap(grad(of_one, has_aux=True), in_dims=(None, 1, 0))(learned, by_image, labels)
        for name, parameter in self._learned.items():
            parameter.grad_sample = gradients[name]  # type: ignore[attr-defined]
        self._noisy.clip_and_accumulate()
        return torch.stack(told, dim=1).detach()

    def _nothing(self) -> Tensor:
        """A step in which no image was drawn: noise alone."""
        for parameter in self._learned.values():
            parameter.grad_sample = parameter.new_zeros(0, *parameter.shape)  # type: ignore[attr-defined]
        self._noisy.clip_and_accumulate()
        return torch.zeros(1, 2 + len(self._names), device=self.labels.device)

    @torch.no_grad()
    def _note(self, told: Tensor) -> None:
        base, align, *terms = told.mean(0).unbind()
        report = self.objective.weighting.report(base, align, self.progress)
        missing = torch.full_like(base, torch.nan)
        named = dict(zip(self._names, terms, strict=True))
        self.log.add(base, align, named, report, norm=missing, factor=missing)

    def adopt(self, client: Client, objective: Objective, views: Views, spec: Spec) -> bool:
        """Never: nothing of one client's private training is used for another's."""
        return False


class PrivateBench(Bench):
    """Where one client is trained privately: nothing is captured."""

    def __init__(self) -> None:
        super().__init__(captured=False, fused=False)
        self.private: PrivateTraining | None = None

    def take(self, client: Client, objective: Objective, views: Views, spec: Spec) -> Training:
        """A client's private training at its start."""
        self.private = PrivateTraining(client, objective, views, spec)
        return self.private
