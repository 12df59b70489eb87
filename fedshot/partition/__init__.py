"""Who holds what: labels in, one list of sample indices per client out, with a fingerprint.

Five different recipes are published under the one name "Dirichlet"; they give different client sizes and different
difficulty, and one of them hands the same images to several clients. Here each has its own name:

| name           | what it does                                                                | disjoint | complete   |
|----------------|-----------------------------------------------------------------------------|----------|------------|
| `dirichlet`    | every class is divided over the clients by Dir(α)                           | yes      | yes        |
| `niid-bench`   | the same, but a full client gets no more; redrawn until everybody has 10    | yes      | yes        |
| `equal-size`   | every client draws N/K samples by its own class prior Dir(α)                | yes      | yes        |
| `client-prior` | every client's class prior Dir(α), normalised per class to divide the class | yes      | yes        |
| `released`     | ten times oversampled, without removal: only to reproduce published figures | **no**   | no         |
| `iid`          | a permutation cut into equal parts                                          | yes      | yes        |
| `shards`       | a fixed number c of classes for each client                                 | yes      | if K·c ≥ C |
| `natural`      | by who wrote or owns a sample                                               | yes      | yes        |
"""

from collections.abc import Callable
from inspect import signature
from math import isfinite

import numpy as np
from numpy.typing import ArrayLike

from fedshot.errors import UserError, unknown
from fedshot.partition import client_prior, dirichlet, equal_size, iid, natural, niid_bench, released, shards
from fedshot.partition.partition import Partition
from fedshot.partition.pools import Indices
from fedshot.partition.validation import hold_out, same_share_of_each

__all__ = ["RECIPES", "Partition", "hold_out", "parameters_of", "same_share_of_each", "split", "unread"]

RECIPES: dict[str, Callable[..., list[Indices]]] = {
    "dirichlet": dirichlet.assign,
    "niid-bench": niid_bench.assign,
    "equal-size": equal_size.assign,
    "client-prior": client_prior.assign,
    "released": released.assign,
    "iid": iid.assign,
    "shards": shards.assign,
    "natural": natural.assign,
}

LARGEST_ALPHA = 1e6  # beyond it a Dirichlet draw is uniform to six digits, and its gammas may overflow
LARGEST_SEED = 2**32 - 1  # of a legacy numpy stream


def parameters_of(recipe: str) -> tuple[str, ...]:
    """What a recipe reads beside clients and seed.

    >>> parameters_of("dirichlet"), parameters_of("iid")
    (('alpha',), ())
    """
    if recipe not in RECIPES:
        raise unknown("partition recipe", recipe, RECIPES)
    used = signature(RECIPES[recipe]).parameters
    return tuple(name for name in ("alpha", "classes_per_client") if name in used)


def unread(recipe: str, partition_file: str | None) -> tuple[str, ...]:
    """Settings of a division that change nothing in it.

    >>> unread("shards", None), unread("dirichlet", "saved.npz")
    (('alpha',), ('recipe', 'alpha', 'classes_per_client'))
    """
    if partition_file:
        return ("recipe", "alpha", "classes_per_client")
    if recipe not in RECIPES:
        return ()  # a mistake that is told elsewhere, or data of the clients' own
    return tuple(name for name in ("alpha", "classes_per_client") if name not in parameters_of(recipe))


def split(
    labels: ArrayLike,
    recipe: str,
    clients: int,
    seed: int,
    alpha: float | None = None,
    classes_per_client: int | None = None,
    groups: ArrayLike | None = None,
    classes: int | None = None,
) -> Partition:
    """Divide a data set over the clients.

    Args:
        labels: class of each sample, (N,).
        recipe: a name in `RECIPES`.
        alpha: concentration of the Dirichlet recipes; small is heterogeneous.
        classes_per_client: for `shards`.
        groups: who owns each sample, (N,), for `natural`.
        classes: number of classes C of the task; by default, the largest label + 1.

    A parameter that the recipe does not read is ignored and not recorded, because a study that compares recipes passes
    the same values to all of them. A client may come out empty, except by `niid-bench`.

    >>> part = split([0, 0, 0, 1, 1, 1], "shards", clients=2, seed=1, alpha=0.05, classes_per_client=1)
    >>> part.sizes, part.entropy_bits, part.parameters
    ((3, 3), (0.0, 0.0), {'clients': 2, 'seed': 1, 'classes_per_client': 1})
    """
    read, assign = parameters_of(recipe), RECIPES[recipe]
    label_array = _checked_labels(labels)
    _check_clients_and_seed(clients, seed, len(label_array))
    parameters: dict[str, int | float] = {"clients": clients, "seed": seed}
    if "alpha" in read:
        parameters["alpha"] = _checked_alpha(recipe, alpha)
    if "classes_per_client" in read:
        present = len(np.unique(label_array))
        parameters["classes_per_client"] = _checked_classes_per_client(classes_per_client, present)
    columns = {"groups": _checked_groups(groups, len(label_array))} if "groups" in signature(assign).parameters else {}
    indices = assign(label_array, **parameters, **columns)
    return Partition.of(indices, label_array, recipe, parameters, classes)


def _checked_labels(labels: ArrayLike) -> Indices:
    array = np.asarray(labels)
    if array.ndim != 1 or len(array) == 0:
        raise UserError(f"labels of shape {array.shape} cannot be split: give one class number per sample, shape (N,)")
    if not np.issubdtype(array.dtype, np.integer) or array.min() < 0:
        raise UserError(f"labels must be class numbers 0, 1, 2 …, not {array.dtype} from {array.min()}")
    return array.astype(np.int64)


def _check_clients_and_seed(clients: int, seed: int, samples: int) -> None:
    if clients < 1:
        raise UserError(f"{clients} clients cannot share a data set: give 1 or more")
    if clients > samples:
        raise UserError(f"{clients} clients are more than the {samples} samples: give at most {samples} clients")
    if not 0 <= seed <= LARGEST_SEED:
        raise UserError(f"seed {seed} is out of range: give a whole number from 0 to {LARGEST_SEED}")


def _checked_alpha(recipe: str, alpha: float | None) -> float:
    if alpha is None:
        raise UserError(f"recipe {recipe!r} needs alpha, the concentration of the Dirichlet: give e.g. alpha = 0.1")
    if not (isfinite(alpha) and 0 < alpha <= LARGEST_ALPHA):
        raise UserError(f"alpha = {alpha} is out of range: give a number above 0, e.g. 0.1, or choose recipe 'iid'")
    return float(alpha)


def _checked_classes_per_client(wanted: int | None, present: int) -> int:
    if wanted is None:
        raise UserError(f"recipe 'shards' needs classes_per_client: give a number from 1 to {present}, e.g. 2")
    if not 1 <= wanted <= present:
        raise UserError(f"{wanted} classes per client are not possible with {present} classes: give 1 to {present}")
    return int(wanted)


def _checked_groups(groups: ArrayLike | None, samples: int) -> Indices:
    if groups is None:
        raise UserError(
            "recipe 'natural' needs a data set that says who owns each sample, and this one has no such "
            "column: choose a data set with groups (see docs/data.md), or another recipe, e.g. dirichlet"
        )
    array = np.asarray(groups)
    if array.shape != (samples,):
        raise UserError(f"groups of shape {array.shape} do not fit {samples} samples: give one group per sample")
    return array
