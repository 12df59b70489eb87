"""What a trained client can tell about its features beside its weights: the statistical sections of an upload."""

from collections.abc import Collection, Iterator

import torch
from torch import Tensor

from fedshot.data.dataset import Labelled
from fedshot.local.familiarity import class_means, familiarity
from fedshot.method import Client
from fedshot.models import Classifier, unit

_CHUNK = 512  # images encoded at once


def statistics(client: Client, model: Classifier, sections: Collection[str]) -> dict[str, dict[str, Tensor]]:
    """The asked sections, from the client's own images without augmentation.

    Args:
        model: a copy of the trained model in evaluation mode; it is only read.

    `familiarity` exists only for a client that holds back validation images: distances of images that the model was
    trained on say nothing about new ones.
    """
    wanted = set(sections) & {"moments", "class_means", "familiarity"}
    if client.validation is None:
        wanted -= {"familiarity"}
    if not wanted:
        return {}
    features, labels = encode(client, model, client.train)
    found: dict[str, dict[str, Tensor]] = {}
    if "moments" in wanted:
        found["moments"] = {"mean": features.mean(0), "std": features.std(0, correction=0)}
    if "class_means" in wanted:
        found["class_means"] = {"means": class_means(features, labels, client.task.classes)}
    if "familiarity" in wanted and client.validation is not None:
        held_out, _ = encode(client, model, client.validation)
        found["familiarity"] = familiarity(unit(features), labels, unit(held_out), client.task.classes)
    return found


@torch.no_grad()
def encode(client: Client, model: Classifier, data: Labelled) -> tuple[Tensor, Tensor]:
    """Raw features (N, d) in float32, and labels (N,)."""
    features = [model.features(client.task.prepare(chunk.images)).float() for chunk in chunks(data)]
    return torch.cat(features), data.labels


@torch.no_grad()
def accuracy(client: Client, model: Classifier, data: Labelled) -> float:
    """The share of images that the model classifies rightly."""
    right = [(model(client.task.prepare(c.images)).argmax(1) == c.labels).sum() for c in chunks(data)]
    return int(torch.stack(right).sum()) / len(data)


def chunks(data: Labelled) -> Iterator[Labelled]:
    """Pieces small enough to encode at once."""
    for start in range(0, len(data), _CHUNK):
        yield Labelled(data.images[start : start + _CHUNK], data.labels[start : start + _CHUNK])
