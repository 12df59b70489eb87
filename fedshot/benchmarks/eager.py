"""A plain torch loop without the published habits: what careful code reaches before anything is captured or compiled.

The data lie on the device, views are made there for the whole batch by the package's own augmentation, products are
float32 with TF32 allowed, cuDNN searches its algorithms, clients come one after the other, nothing is evaluated on the
way. torch uses its default number of threads.
"""

from collections.abc import Iterator

import torch

from fedshot.benchmarks.plain import Measured, PlainClient, images_per_second, torch_set
from fedshot.local.views import augment
from fedshot.local.work import forget_peak_memory, peak_memory
from fedshot.seeds import stream
from fedshot.setting import Setting


def training_steps(plain: PlainClient, device: torch.device) -> Iterator[int]:
    """Trains without end; yields the images of each step."""
    client, seed = plain.client, plain.spec.seed
    order = stream(seed, "batches", client.id)
    draws = stream(seed, "augmentation", client.id, device=device)
    while True:
        for batch in torch.randperm(len(client.train), generator=order).to(device).split(client.batch_size):
            images, labels = client.train.images[batch], client.train.labels[batch]
            if len(batch) == 1:  # BatchNorm cannot normalise one image
                continue
            pixels = augment(images.repeat(plain.views, 1, 1, 1), client.task.augmentation, draws)
            plain.step(client.task.normalise(pixels), labels)
            yield len(labels)


def measure_eager(setting: Setting, seconds: float) -> Measured:
    """Steps of one client for that many seconds."""
    forget_peak_memory(setting.device)
    with torch_set(products="high", search=True):
        plain = PlainClient(setting)
        found = images_per_second(training_steps(plain, setting.device), seconds, setting.device)
    return Measured(
        images_per_second=found,
        seconds_per_client_epoch=len(plain.client.train) / found,
        peak_memory_bytes=peak_memory(setting.device),
    )
