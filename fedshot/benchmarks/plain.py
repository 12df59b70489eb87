"""What the two reference loops share: a client trained in plain torch, and how its speed is taken.

Model, objective, clipping and optimiser are the package's own, so that the work of a step is the same everywhere.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedshot.local.objective import Step
from fedshot.local.optimise import clip_gradients, make_optimiser, parameter_groups, set_rates
from fedshot.method import Client
from fedshot.models import unit
from fedshot.setting import Setting

_WARM_UP = 5  # steps before the clock starts: kernels are chosen, memory is taken
_PARTS = 5


@dataclass(frozen=True)
class Measured:
    """What was found about one loop."""

    images_per_second: float  # source images; each is seen as all its views
    seconds_per_client_epoch: float
    peak_memory_bytes: int
    startup_seconds: float | None = None  # None for a loop that has nothing to capture or compile
    note: str = ""


class PlainClient:
    """One client in eager torch: float32, the default memory order, a constant learning rate."""

    def __init__(self, setting: Setting, number: int = 0) -> None:
        client = setting.client(number)
        if not isinstance(client, Client):
            raise ValueError(f"client {number} cannot train: {client}")
        self.client = client
        self.spec = setting.spec
        self.views = setting.method.views.augmented
        self.model = client.model.train()
        for parameter in self.model.parameters():
            parameter.data = parameter.data.contiguous()
        self.objective = setting.method.objective(client)
        self.progress = torch.zeros((), device=setting.device)
        self.groups = parameter_groups(self.model, self.objective.weighting, setting.spec, setting.device)
        self.optimiser = make_optimiser(self.groups, setting.spec)
        set_rates(self.groups, self.progress, setting.spec)

    def step(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """One step on normalised views, all of view 1, then all of view 2: (V*B, channels, H, W); labels (B,)."""
        features = self.model.encoder(inputs)
        step = Step(
            model=self.model,
            features=features,
            unit=unit(features),
            logits=self.model.head(features),
            labels=labels.repeat(self.views),
            image_labels=labels,
            views=self.views,
            plain_logits=None,
            targets=None,
            progress=self.progress,
        )
        base, align, _ = self.objective.losses(step)
        loss = self.objective.weighting(base, align, self.progress)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        clip_gradients(self.groups, self.spec)
        self.optimiser.step()
        return loss.detach()


def images_per_second(steps: Iterator[int], seconds: float, device: torch.device) -> float:
    """Takes steps, each of which says how many images it handled, for that many seconds after a warm-up.

    The best of five equal parts of that time: other work on the machine can only make a loop look slower.
    """
    for _ in range(_WARM_UP):
        next(steps)
    speeds = []
    for _ in range(_PARTS):
        wait(device)
        started, images = time.perf_counter(), 0
        while images == 0 or time.perf_counter() - started < seconds / _PARTS:
            images += next(steps)
        wait(device)
        speeds.append(images / (time.perf_counter() - started))
    return max(speeds)


def wait(device: torch.device) -> None:
    """Until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def torch_set(products: Literal["highest", "high"], search: bool) -> Iterator[None]:
    """torch's own switches for the time of a measurement, whatever was measured before.

    Args:
        products: float32 matrix products in full ("highest", torch's default) or as TF32 on a GPU ("high").
        search: whether cuDNN tries its algorithms for each new shape; torch's default is not.
    """
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision(products)
    torch.backends.cudnn.benchmark = search
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.benchmark = before[1]
