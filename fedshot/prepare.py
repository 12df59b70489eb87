"""A spec checked and completed: everything that can be wrong is told before a second is spent on training."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fedshot.data.dataset import Dataset, content_sha256
from fedshot.data.public import NO_PUBLIC
from fedshot.errors import UserError, unknown
from fedshot.holding import held_by_clients, load_data, public_part
from fedshot.methods import canonical, factory_of, make_method
from fedshot.models import ENCODERS, default_encoder
from fedshot.options import resolve
from fedshot.own_rule import check_heard, chosen_rule, settled
from fedshot.pretrained import Pretrained, open_pretrained
from fedshot.privacy.check import check_privacy
from fedshot.setting import Setting, default_batch_size
from fedshot.spec import Spec, make_spec
from fedshot.task import Task
from fedshot.user_file import file_of

DEFAULT_PUBLIC = "0.1"  # a tenth of the training images, as in the notes


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
    fusion = chosen_rule(spec.fusion, method, options)
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
