"""A spec made concrete: the data, their partition, the method and the task, before anything is trained."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedshot.data.dataset import Dataset, Labelled, content_sha256
from fedshot.data.public import NO_PUBLIC
from fedshot.errors import UserError, unknown
from fedshot.fusion import FUSIONS, Fusion, make_fusion
from fedshot.holding import held_by_clients, load_data, public_part
from fedshot.local.arrival import to_device
from fedshot.local.rehearsal import rehearse_terms
from fedshot.local.statistics import sizes_of
from fedshot.method import Client, Method, Opening
from fedshot.methods import canonical, factory_of, make_method
from fedshot.models import ENCODERS, Classifier, default_encoder
from fedshot.models.copies import copy_of
from fedshot.options import options_of, resolve
from fedshot.own_rule import check_heard, settled
from fedshot.partition import Partition, hold_out, same_share_of_each
from fedshot.partition.own import OWN
from fedshot.pretrained import Pretrained, open_pretrained
from fedshot.privacy.check import check_objective, check_privacy
from fedshot.sections import Sizes
from fedshot.spec import Spec, make_spec
from fedshot.task import Task
from fedshot.user_file import blamed, file_of

DEFAULT_PUBLIC = "0.1"  # a tenth of the training images, as in the notes


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


def prepare(spec: Spec, data_root: Path | None = None, device: str = "cpu", kept: Path | None = None) -> Setting:
    """Checks everything that can be wrong with a spec before a second is spent on training.

    Args:
        kept: where the run, if it has begun, keeps the weights that its clients start from (`RunFolder.pretrained`).
    """
    spec, method_name = settled(spec), canonical(spec.method)
    options = resolve(factory_of(method_name), spec.options, f"method {method_name!r}")
    if hidden := sorted(options.keys() & Spec.model_fields.keys()):
        raise UserError(f"method {method_name!r}: its option {hidden[0]!r} is also a setting of every run: rename it")
    method = make_method(method_name, spec.options)
    given = {name: getattr(spec, name) for name in spec.model_fields_set}
    # a bound goes with what it bounds: who gives the share of validation images gets that share
    brought = {name: value for name, value in method.settings.items() if name.removesuffix("_most") not in given}
    spec = make_spec(**{**brought, **given})
    if spec.validation_most and not spec.validation:
        raise UserError("validation_most bounds what a client holds back, and that is nothing: add --validation 0.1")
    fusion = _rule(spec.fusion, method, options)
    check_heard(method_name, options, spec.fusion)
    if spec.encoder is not None and spec.encoder not in ENCODERS:
        raise unknown("encoder", spec.encoder, ENCODERS)
    if fusion.held_out and not spec.validation:
        raise UserError(f"fusion {fusion.name} needs held-out images of every client: add --validation 0.1")
    data = load_data(spec, data_root, device)
    asked = spec.public or (DEFAULT_PUBLIC if method.public or fusion.public else None)
    public = public_part(asked, spec.data, data_root, spec.seed, device) if asked else NO_PUBLIC
    pretrained = open_pretrained(spec.pretrained, spec.pretrained in spec.files, kept) if spec.pretrained else None
    complete = spec.model_copy(
        update={
            "method": method_name,
            "options": options,
            "files": file_hashes(spec, method_name, options, {spec.data: data, asked: public.source}, pretrained),
            "encoder": spec.encoder or default_encoder(data.shape),
            "augmentation": spec.augmentation or data.augmentation,
            "batch_size": spec.batch_size or min(default_batch_size(data), method.largest_batch or len(data.train)),
            "evaluate_at": tuple(sorted({*spec.evaluate_at, spec.epochs})),
            "precision": spec.precision or ("bf16" if device.startswith("cuda") and not spec.dp_noise else "fp32"),
            "fusion": spec.fusion or fusion.name,
            "public": asked,
        }
    )
    task = Task(
        classes=data.classes,
        shape=data.shape,
        mean=data.mean,
        std=data.std,
        encoder=complete.encoder or "",
        norm=complete.norm,
        seed=complete.seed,
        augmentation=complete.augmentation or data.augmentation,
        public=public.images,
        normalisation=complete.normalisation,
        pretrained=pretrained,
    )
    if task.normalisation == "twice" and task.augmentation != "natural":
        raise UserError(
            f"normalisation=twice does nothing to views of the recipe {task.augmentation}: published code has it for "
            "photographs, add --set augmentation=natural"
        )
    method.check(task)
    check_privacy(complete, method, fusion)
    partition = held_by_clients(complete, data, data_root, device)
    return Setting(complete, method, fusion, data, partition, task, torch.device(device))


def _rule(asked: str | None, method: Method, options: Mapping[str, Any]) -> Fusion:
    """The fusion rule that was asked for, checked against what clients of the method send."""
    fusion = rule_of(method, asked)
    if asked and fusion.name == method.fusion.name != asked and not file_of(asked):
        known = FUSIONS.get(fusion.name)
        if known and (twice := sorted(options_of(known).keys() & options.keys())):
            raise UserError(
                f"method {method.name!r} makes its own rule {fusion.name!r}: give the rule's options as the method's, "
                f"--set {twice[0]}=…, instead of --fusion {asked}"
            )
    check_sections(fusion, method)
    return fusion


def rule_of(method: Method, asked: str | None) -> Fusion:
    """The fusion rule that was asked for; the method's own if none was.

    Its bare name means it as the method made it, with the method's options.
    """
    return method.fusion if asked in (None, method.fusion.name) else make_fusion(asked)


def check_sections(fusion: Fusion, method: Method) -> None:
    """Refuses a rule that reads what the clients of a method never send."""
    if unknown_ones := [name for name in fusion.needs if name not in ("weights", *method.statistics)]:
        raise UserError(
            f"fusion {fusion.name} needs {', '.join(unknown_ones)}, which clients of {method.name} do not send: choose "
            f"another rule, e.g. {method.fusion.name}"
        )


def file_hashes(
    spec: Spec,
    method: str,
    options: Mapping[str, Any],
    data: Mapping[str | None, Dataset | None],
    pretrained: Pretrained | None,
) -> dict[str, str]:
    """sha256 of everything of the user's that decides the result, pictures included: an edited file makes another run.

    Refuses a spec that was completed with other content: its run cannot go on with these files.

    Args:
        data: the data sets that the run reads, by name.
    """
    named = [spec.partition_file, *(value for key, value in options.items() if key.rpartition(".")[2] == "file")]
    named += [file_of(method), file_of(spec.fusion)]
    paths = [path for path in named if path and Path(path).is_file()]  # a missing one is told by its reader
    found = {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}
    if pretrained is not None:
        found[pretrained.source] = pretrained.sha256
    found |= {name: content_sha256(each) for name, each in data.items() if each and name and name.startswith("folder")}
    if changed := [path for path, known in spec.files.items() if found.get(path, known) != known]:
        raise UserError(f"{changed[0]} has changed since this run began: start a new run in another --out")
    return found


def default_batch_size(data: Dataset) -> int:
    """512 as in the published settings, 256 for images of 64×64, 32 for data sets of some thousand images."""
    if len(data.train) < 10_000:
        return 32
    return 256 if max(data.shape[1:]) > 32 else 512
