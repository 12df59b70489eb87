"""A client's work under the privacy settings of its run: what it trains with, and what it tells afterwards."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedshot.local.objective import Objective
from fedshot.local.step import batch_sizes
from fedshot.local.telemetry import Row
from fedshot.local.train import Bench
from fedshot.method import Client, Method
from fedshot.privacy.accountant import Spent, spent
from fedshot.privacy.counts import told_counts
from fedshot.privacy.randomness import seeded
from fedshot.privacy.separable import check_separable, objective_without_data
from fedshot.spec import Spec
from fedshot.store import write_atomic

# what follows from the model alone, which is told anyway; all else in a row is a mean over images without noise
_OF_THE_MODEL = ("client", "epoch", "prototype_norm", "cos_prototype_anchor")


@dataclass(frozen=True)
class Told:
    """What a client tells of how much it holds."""

    class_counts: tuple[int, ...]
    samples: int
    validation_samples: int


def kept_told(client: Client, spec: Spec, file: Path) -> Told:
    """The same for one job, whatever happens to its process: noise of the system is drawn once and kept in a file.

    Drawn twice, its mean would tell more than one draw does.
    """
    if seeded(spec) or not spec.counts.startswith("noised"):
        return told(client, spec)
    if not file.exists():
        write_atomic(file, json.dumps(asdict(told(client, spec))).encode())
    content = json.loads(file.read_bytes())
    return Told(tuple(content["class_counts"]), content["samples"], content["validation_samples"])


def told(client: Client, spec: Spec) -> Told:
    """The numbers of images that leave a client; noise of the system is drawn anew at each call."""
    counts, samples = told_counts(client, spec)
    held_out = len(client.validation) if client.validation else 0
    if spec.counts.startswith("noised"):  # of which the exact number would tell the exact total
        held_out = round(samples * spec.validation / (1 - spec.validation))
        held_out = min(held_out, spec.validation_most or held_out)
    return Told(counts, samples, held_out)


def told_state(state: Mapping[str, Tensor], spec: Spec) -> dict[str, Tensor]:
    """The weights that leave a client. Counters of steps, which no answer reads, are 0 where counts carry noise.

    BatchNorm counts its batches: epochs × ⌈n / batch⌉, the number of images that the noise is to hide.
    """
    hidden = spec.counts.startswith("noised")
    return {n: torch.zeros_like(t) if hidden and not t.is_floating_point() else t for n, t in state.items()}


def told_row(row: Row, spec: Spec) -> None:
    """Takes out of a telemetry row what may not leave under the run's privacy settings, in place."""
    if spec.dp_noise is not None:
        row.update({key: None for key in row if key not in _OF_THE_MODEL})


def training_of(
    method: Method, client: Client, spec: Spec, counts: tuple[int, ...], bench: Bench
) -> tuple[Objective, Bench]:
    """The objective and the bench of a client: the method's own and the given one, or private ones.

    Args:
        counts: what the client tells of its class counts: under noise its objective sees no others.
    """
    if spec.dp_noise is None:
        return method.objective(client), bench
    objective = objective_without_data(method, client, counts)
    check_separable(method, client, objective)
    from fedshot.privacy.dpsgd import PrivateBench  # opacus is an extra

    return objective, PrivateBench()


def guarantee(spec: Spec, client: Client) -> Spent | None:
    """What training costs a client's images; None without noise."""
    if spec.dp_noise is None:
        return None
    samples = len(client.train)
    steps = spec.epochs * len(batch_sizes(samples, client.batch_size))
    return spent(spec, min(1.0, client.batch_size / samples), steps)
