"""FAFI whose contrast also runs over a queue of the client's past features (Sun et al. 2024, GraphMoCo)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from fedshot.local import losses
from fedshot.local.objective import Objective, Step, Term
from fedshot.local.queue import Queue
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CLASSIFICATION, PROTOTYPE_FEATURE, PROTOTYPE_PROTOTYPE
from fedshot.seeds import stream

Size = Annotated[int, Field(ge=0, le=2**20)]


def memory_bank(size: Size = 4096) -> Method:
    """As first tried: the queue starts with random vectors, and every entry is a negative, whatever its class."""

    def start(client: Client) -> Queue:
        draws = stream(client.task.seed, "memory bank", client.id)
        return Queue.random(size, client.model.encoder.width, client.train.labels.device, draws)

    return _with_queue("memory_bank", size, start, "repel")


def memory_bank_sound(size: Size = 4096, same_class: Literal["ignore", "attract"] = "ignore") -> Method:
    """The queue starts empty, and entries of an anchor's own class are no negatives: left out, or positives."""

    def start(client: Client) -> Queue:
        return Queue.empty(size, client.model.encoder.width, client.train.labels.device)

    return _with_queue("memory_bank_sound", size, start, same_class)


def _with_queue(
    name: str, size: int, start: Callable[[Client], Queue], same_class: Literal["repel", "ignore", "attract"]
) -> Method:
    def objective(client: Client) -> Objective:
        queue = start(client)
        share = queue.features.new_zeros(())

        def contrast(step: Step) -> Tensor:
            bank = queue.features, queue.labels
            loss = losses.bank_contrast(step.unit, step.labels, *bank, 0.07, same_class, queue.filled)
            share.copy_(queue.own_share(step.image_labels))
            queue.push(step.unit[: len(step.image_labels)], step.image_labels)  # first views; backward reads a copy
            return loss

        base = (CLASSIFICATION, Term("contrast", contrast), PROTOTYPE_FEATURE, PROTOTYPE_PROTOTYPE)
        return Objective(base, reports=(Term("own_class_share", lambda step: share),))

    return replace(fafi(), name=name, objective=objective if size else fafi().objective)
