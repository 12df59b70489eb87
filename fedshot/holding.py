"""The data that a spec names, and who holds what of them."""

from functools import lru_cache, partial
from pathlib import Path

from fedshot.data import load
from fedshot.data.dataset import Dataset
from fedshot.data.public import NO_PUBLIC, PublicPart, open_public
from fedshot.errors import UserError
from fedshot.partition import Partition, split
from fedshot.partition.own import OWN, unknown_to_server
from fedshot.spec import Spec


def load_data(spec: Spec, data_root: Path | None = None, device: str = "cpu") -> Dataset:
    """The data set of a spec. A folder without a test part is split by the seed; every other one ignores it."""
    return _loaded(spec.data, data_root, spec.seed, device)


def _loaded(name: str, root: Path | None, seed: int, device: str) -> Dataset:
    return _dataset(name, root, seed if name.startswith("folder") else 0, device)


@lru_cache(maxsize=3)
def _dataset(name: str, root: Path | None, seed: int, device: str) -> Dataset:
    return load(name, root, seed).to(device)


@lru_cache(maxsize=8)  # the runs of a study share them
def public_part(asked: str, data: str, root: Path | None, seed: int, device: str) -> PublicPart:
    """The public images that were asked for, as a share of the data set or as another one."""
    return open_public(asked, data, partial(_loaded, root=root, seed=seed, device=device), seed)


def held_by_clients(spec: Spec, data: Dataset, data_root: Path | None = None, device: str = "cpu") -> Partition:
    """Who holds what, after the public images were taken away."""
    public = public_part(spec.public, spec.data, data_root, spec.seed, device) if spec.public else NO_PUBLIC
    return divide(spec, data).without(public.taken, data.train.labels.cpu().numpy())


def divide(spec: Spec, data: Dataset) -> Partition:
    """Who holds what: by the recipe, or from a file. Of clients with data of their own the server knows nothing."""
    labels = data.train.labels.cpu().numpy()
    if spec.partition_file:
        found = Partition.load(spec.partition_file, labels, data.classes)
        if found.clients != spec.clients:
            raise UserError(
                f"{spec.partition_file} divides the data over {found.clients} clients, not {spec.clients}: "
                f"add --clients {found.clients}"
            )
        return found
    if spec.recipe == OWN:
        return unknown_to_server(spec.clients, labels, data.classes)
    groups = None if data.groups is None else data.groups.cpu().numpy()
    return split(
        labels, spec.recipe, spec.clients, spec.seed, spec.alpha, spec.classes_per_client, groups, data.classes
    )
