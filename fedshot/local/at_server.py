"""A model that the server trains by itself, with the loop of the clients: a teacher before them, a student after."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field

from fedshot.data.dataset import Labelled
from fedshot.local.objective import Objective
from fedshot.local.telemetry import Row
from fedshot.local.train import Bench, steps
from fedshot.method import Client, Views
from fedshot.models import Classifier
from fedshot.options import AboveZero, NotNegative
from fedshot.spec import Positive, make_spec
from fedshot.task import Task
from fedshot.telling import tell


@dataclass(frozen=True)
class ServerTraining:
    """How long and how fast the server trains; SGD with momentum 0.9, float32 on a CPU and bf16 on a GPU.

    `passes` over its images, in batches of `batch`, at the learning rate `rate`, which falls to 0 by a cosine if asked;
    `decay` is weight decay.
    """

    passes: Positive = 20
    rate: AboveZero = 0.05
    batch: Annotated[int, Field(ge=2)] = 64
    cosine: bool = False
    decay: NotNegative = 0.0


def trained_at_server(
    model: Classifier, data: Labelled, task: Task, objective: Objective, views: Views, how: ServerTraining, what: str
) -> Classifier:
    """The model after training on images that the server has, in evaluation mode. It is trained in place.

    Args:
        what: it is, in words for who waits: a teacher, a student.
    """
    device = data.labels.device
    spec = make_spec(
        method="fafi",  # names nothing here: the objective is given
        epochs=how.passes,
        lr=how.rate,
        batch_size=how.batch,
        schedule="cosine" if how.cosine else "constant",
        weight_decay=how.decay,
        seed=task.seed,
        precision="bf16" if device.type == "cuda" else "fp32",
    )
    counts = tuple(torch.bincount(data.labels, minlength=task.classes).tolist())
    server = Client(
        id=-1,  # draws from streams of its own
        task=task,
        train=data,
        validation=None,
        class_counts=counts,
        model=model,
        epochs=how.passes,
        batch_size=how.batch,
    )

    def ended(epoch: int, model: Classifier | None, row: Row) -> None:
        tell(f"training {what} at the server: {epoch} of {how.passes} passes over {len(data):,} images")

    with _stream_of_its_own(device):
        for _ in steps(server, objective, views, spec, ended, Bench()):
            pass
    return model.eval().requires_grad_(False)


@contextmanager
def _stream_of_its_own(device: torch.device) -> Iterator[None]:
    """Where steps can be captured, on a GPU; on a CPU nothing."""
    if device.type != "cuda":
        yield
        return
    tries_algorithms = torch.backends.cudnn.benchmark
    outside, stream = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    stream.wait_stream(outside)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        outside.wait_stream(stream)
        torch.backends.cudnn.benchmark = tries_algorithms
