"""What a trained client can tell about its features beside its weights: the statistical sections of an upload."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from fedshot.data.dataset import Labelled
from fedshot.method import Client
from fedshot.models import Classifier
from fedshot.sections import Evidence, Section, Sizes
from fedshot.task import Task

CHUNK = 512  # images encoded at once


@torch.no_grad()
def evidence_of(client: Client, model: Classifier, sizes: Sizes, features: Tensor | None = None) -> Evidence:
    """What the client's own images are to its model, without augmentation.

    Args:
        model: a copy of the trained model in evaluation mode; it is only read.
        features: of the training images, (N, d), where they are known already.
    """
    features = encode(client, model, client.train) if features is None else features
    held_out = encode(client, model, client.validation) if client.validation else None
    return Evidence(
        features,
        client.train.labels,
        held_out,
        sizes,
        logits=model.logits(features),
        held_out_logits=None if held_out is None else model.logits(held_out),
        held_out_labels=client.validation.labels if client.validation else None,
        images=client.train.images,
        task=client.task,
    )


@torch.no_grad()
def statistics(evidence: Evidence, known: Mapping[str, Section]) -> dict[str, dict[str, Tensor]]:
    """The given sections, those that this client can have."""
    made = {name: section.make(evidence) for name, section in known.items()}
    return {name: content for name, content in made.items() if content is not None}


def sizes_of(model: Classifier, task: Task) -> Sizes:
    """What the shapes of sections follow from, for a model as every client has it."""
    return Sizes(model.width, task.classes, task.shape, sum(t.numel() for t in model.state_dict().values()))


@torch.no_grad()
def encode(client: Client, model: Classifier, data: Labelled) -> Tensor:
    """Raw features (N, d) in float32."""
    features = [model.features(client.task.prepare(chunk.images)).float() for chunk in chunks(data)]
    return torch.cat(features)


@torch.no_grad()
def nearest_mean_agreement(evidence: Evidence) -> Tensor:
    """NC4, Papyan et al. 2020 (arXiv:2008.08186): how often model and nearest class mean decide the same.

    A 0-dim number of the client's training images, without augmentation; in the terminal phase of training it tends to
    all of them. It says nothing about a client of one class.
    """
    distances = torch.cdist(evidence.features, evidence.class_means).masked_fill(~evidence.held, torch.inf)
    return (evidence.logits.argmax(1) == distances.argmin(1)).sum()


@torch.no_grad()
def accuracy(client: Client, model: Classifier, data: Labelled) -> float:
    """The share of images that the model classifies rightly."""
    right = [(model(client.task.prepare(c.images)).argmax(1) == c.labels).sum() for c in chunks(data)]
    return int(torch.stack(right).sum()) / len(data)


def chunks(data: Labelled) -> Iterator[Labelled]:
    """Pieces small enough to encode at once."""
    for start in range(0, len(data), CHUNK):
        yield Labelled(data.images[start : start + CHUNK], data.labels[start : start + CHUNK])
