"""The only training loop: one client, alone, from the shared initial model to the end of its local run."""

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from fedshot.local.objective import Objective, Step
from fedshot.local.optimise import clip_gradients, make_optimiser, parameter_groups, set_rates
from fedshot.local.telemetry import EpochLog, Row
from fedshot.local.views import augment
from fedshot.method import Client, Views
from fedshot.models import Classifier, unit
from fedshot.seeds import stream
from fedshot.spec import Spec


class TrainingDiverged(ArithmeticError):
    """The loss or the state of a client's model is not finite any more. `row` is the telemetry of that epoch."""

    def __init__(self, row: Row) -> None:
        super().__init__(f"training diverged in epoch {row['epoch']}: the loss or the model is not finite")
        self.row = row


def train(
    client: Client,
    objective: Objective,
    views: Views,
    spec: Spec,
    at_epoch: Callable[[int, Classifier, Row], None],
) -> None:
    """Trains `client.model` in place; calls `at_epoch(epoch, model, telemetry)` after each of the epochs 1 … E.

    Momentum, schedules and random streams live as long as the client. An epoch that ends with numbers that are not
    finite raises `TrainingDiverged` instead of the call. `at_epoch` is handed the live model: whoever
    evaluates it works on a copy (`frozen_copy`), so that training is the same with and without evaluation.
    """
    device = client.train.labels.device
    objective = replace(objective, weighting=objective.weighting.to(device))
    groups = parameter_groups(client.model, objective.weighting, spec, device)
    optimiser = make_optimiser(groups, spec)
    order = stream(spec.seed, "batches", client.id)
    draws = stream(spec.seed, "augmentation", client.id, device=device)
    steps = len(batches(len(client.train), client.batch_size, stream(0)))
    progress = torch.zeros((), device=device)
    client.model.train()
    for epoch in range(spec.epochs):
        log = EpochLog(client.model, objective)
        for index, batch in enumerate(batches(len(client.train), client.batch_size, order)):
            progress.fill_((epoch * steps + index) / (spec.epochs * steps))
            set_rates(groups, progress, spec)
            step = forward(client, batch.to(device), views, spec, draws, progress)
            base, align, terms = objective.losses(step)
            loss = objective.weighting(base, align, progress)
            with torch.no_grad():
                report = objective.weighting.report(base, align, progress)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            norm, factor = clip_gradients(groups, spec)
            log.add(base, align, terms, report, norm, factor)
            optimiser.step()
        row = log.row(client.id, epoch + 1)
        if row["base_loss"] is None or not is_finite(client.model):
            raise TrainingDiverged(row)
        at_epoch(epoch + 1, client.model, row)


def forward(client: Client, batch: Tensor, views: Views, spec: Spec, draws: torch.Generator, progress: Tensor) -> Step:
    """One pass of all views of a batch through the model, as the terms of an objective read it."""
    images, labels = client.train.images[batch], client.train.labels[batch]
    pixels = augment(images.repeat(views.augmented, 1, 1, 1), client.augmentation, draws)
    if views.plain:
        pixels = torch.cat([pixels, images.float() / 255])
    inputs = client.task.normalise(pixels).contiguous(memory_format=torch.channels_last)
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=spec.precision == "bf16"):
        encoded = client.model.encoder(inputs)
    features = encoded.float()  # losses are computed in float32
    logits = client.model.head(features)
    seen = views.augmented * len(labels)
    return Step(
        model=client.model,
        features=features[:seen],
        unit=unit(features[:seen]),
        logits=logits[:seen],
        labels=labels.repeat(views.augmented),
        views=views.augmented,
        plain_logits=logits[seen:] if views.plain else None,
        progress=progress,
    )


def batches(samples: int, batch_size: int, order: torch.Generator) -> list[Tensor]:
    """A fresh permutation of 0 … samples-1 in pieces of `batch_size`; the last may be smaller, but never a single one.

    BatchNorm cannot normalise one sample, so a single one left over joins the piece before it.

    >>> [len(batch) for batch in batches(9, 4, torch.Generator())]
    [4, 5]
    """
    permutation = torch.randperm(samples, generator=order)
    pieces = list(permutation.split(batch_size))
    if len(pieces) > 1 and len(pieces[-1]) == 1:
        pieces[-2:] = [torch.cat(pieces[-2:])]
    return pieces


def is_finite(model: Classifier) -> bool:
    """Whether every parameter and buffer of the model is a number."""
    return bool(torch.stack([tensor.isfinite().all() for tensor in model.state_dict().values()]).all())


def frozen_copy(model: Classifier) -> Classifier:
    """A copy in evaluation mode that shares nothing with the live model."""
    return copy.deepcopy(model).eval().requires_grad_(False)
