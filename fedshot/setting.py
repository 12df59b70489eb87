"""A spec made concrete: the data, their partition, the method and the task, before anything is trained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedshot.data.dataset import Dataset, Labelled
from fedshot.errors import UserError
from fedshot.fusion import Fusion
from fedshot.local.arrival import to_device
from fedshot.local.rehearsal import rehearse_terms
from fedshot.local.statistics import sizes_of
from fedshot.method import Client, Method, Opening
from fedshot.models import Classifier
from fedshot.models.copies import copy_of
from fedshot.partition import Partition, hold_out, same_share_of_each
from fedshot.partition.own import OWN
from fedshot.privacy.check import check_objective
from fedshot.sections import Sizes
from fedshot.spec import Spec
from fedshot.task import Task
from fedshot.user_file import blamed, file_of


@dataclass(frozen=True)
class Setting:
    """Everything that clients and server agree on."""

    spec: Spec  # complete
    method: Method
    fusion: Fusion
    data: Dataset  # on the device
    partition: Partition
    task: Task
    device: torch.device

    @property
    def own(self) -> bool:
        """Whether the clients hold data of their own, of which the server knows nothing."""
        return self.spec.recipe == OWN and not self.spec.partition_file

    def client(
        self,
        number: int,
        job: Mapping[str, Tensor] = MappingProxyType({}),
        copy: Callable[[Classifier], Classifier] = copy_of,
    ) -> Client | str:
        """A client ready to train, or why it cannot.

        Args:
            job: what the server sent with the job. Clients must not share these tensors.
            copy: makes the client's own model of the initial one, which nobody may change.
        """
        indices, held_back = self._indices(number)
        if len(indices) < 2:
            return "no samples" if len(indices) == 0 else "1 sample: BatchNorm needs two"
        train = self.data.train[to_device(torch.from_numpy(indices), self.device)]
        validation = self.data.train[to_device(torch.from_numpy(held_back), self.device)] if len(held_back) else None
        model, class_counts = copy(self.initial_model), tuple(self._counts(indices))
        if self.spec.counts == "exact":  # or the model would tell them
            model.begin(class_counts)
        return Client(
            id=number,
            task=self.task,
            train=train,
            validation=validation,
            class_counts=class_counts,
            model=model,
            epochs=self.spec.epochs,
            batch_size=self.spec.batch_size or default_batch_size(self.data),
            job=job,
        )

    def opening(self, announced: Tensor | None = None) -> Opening:
        """What the server knows before any client trains.

        Args:
            announced: class counts as clients told them, (K, C); None for those of the partition.
        """
        if self.method.phases == 1:
            return Opening(self.task, self.initial_model, None)
        if announced is None:
            announced = torch.tensor([self.class_counts(number) for number in range(self.spec.clients)])
        return Opening(self.task, self.initial_model, announced)

    def class_counts(self, number: int) -> list[int]:
        """How many images of each class a client trains on, those that it holds back left out."""
        return self._counts(self._indices(number)[0])

    def on_held_out(self) -> "Setting":
        """The same with the images that clients hold back in the place of test images."""
        if self.own:
            raise UserError("what the clients hold back is theirs alone: the server of a real federation has no image")
        if not self.spec.validation:
            raise UserError("the clients of this run hold nothing back: train with --validation 0.1")
        if self.held_out is None:
            raise UserError(
                f"no client of this run holds back an image that none trained on: a share of {self.spec.validation:g} "
                "of so few, or images that several clients have"
            )
        return replace(self, data=replace(self.data, test=self.held_out))

    @cached_property
    def held_out(self) -> Labelled | None:
        """Images that clients hold back and none trains on; None where there are none. What choices may be made on.

        Of each client that holds some back they are the same share of what it has, as test images would be.
        """
        if self.own or not self.spec.validation:
            return None
        parts = [self._indices(number) for number in range(self.spec.clients)]
        judges = np.unique(np.concatenate(same_share_of_each(parts, self.spec.seed, self._labels)))
        return self.data.train[to_device(torch.from_numpy(judges), self.device)] if len(judges) else None

    @cached_property
    def initial_model(self) -> Classifier:
        """The model that every client starts from."""
        model = self.method.model(self.task).to(self.device)
        for parameter in model.parameters():
            if parameter.ndim == 4:  # convolutions are faster in this order of memory, on CPUs and GPUs
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        return model

    @cached_property
    def sizes(self) -> Sizes:
        """What the shapes of an upload's sections follow from."""
        return sizes_of(self.initial_model, self.task)

    def rehearse(self) -> None:
        """Builds what only training would build, so that a wrong option is told before anything is written."""
        self.fusion.check(self.initial_model)
        clients = (self.client(number) for number in range(self.spec.clients))
        first = next((client for client in clients if isinstance(client, Client)), None)
        if first is None and self.own:
            raise UserError(
                f"recipe {OWN}: the clients hold data of their own, which only a real federation has: start one by "
                "`fedshot federation run`, or choose a recipe, e.g. --recipe dirichlet"
            )
        if first is None:
            raise UserError(f"none of the {self.spec.clients} clients holds two samples: choose fewer clients")
        if self.method.broadcast is None:  # what is sent with the job is made later, and checked by the method
            with blamed(self.spec.method):
                check_objective(self.method, first, self.spec)
                if file_of(self.spec.method) and self.spec.dp_noise is None:
                    rehearse_terms(self.method, first, self.spec)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()  # lanes are planned by what the first of them takes

    def _indices(self, number: int) -> tuple[Any, Any]:
        spec, mine = self.spec, self.partition.indices[number]
        return hold_out(mine, spec.validation, spec.seed, number, self._labels, spec.validation_most)

    def _counts(self, indices: Any) -> list[int]:
        return np.bincount(self._labels[indices], minlength=self.task.classes).tolist()

    @cached_property
    def _labels(self) -> Any:
        return self.data.train.labels.cpu().numpy()


def default_batch_size(data: Dataset) -> int:
    """512 as in the published settings, 256 for images of 64×64, 32 for data sets of some thousand images."""
    if len(data.train) < 10_000:
        return 32
    return 256 if max(data.shape[1:]) > 32 else 512
