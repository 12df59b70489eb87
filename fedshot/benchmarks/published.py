"""How published one-shot code trains, re-created: the yardstick of every row.

The habits, each of them found in released code (FAFI's above all), none of them slowed down on purpose:

1. Samples come from a `DataLoader` in the main process (`num_workers=0`). Each is decoded to a PIL image by itself,
   again in every epoch, although the data set fits in memory.
2. Two views of each image are made with PIL on the CPU: random resized crop, flip, colour jitter, grey; then a tensor
   is made of it and normalised. (FAFI's release decodes image by image too, but draws one crop and one jitter for the
   whole batch. That is less work and another augmentation; drawing for each image is what papers describe.)
3. float32 throughout, torch's default memory order, no compiler; cuDNN may use TF32, as is torch's default. The
   release also sets cudnn.deterministic, which is left out here.
4. One client after the other. torch uses its default number of threads.
5. After every epoch of every client the model is evaluated on all of the client's training images and on all test
   images, again through a loader of single PIL images.
6. The last, smaller batch is dropped.

Model, objective, clipping and optimiser are the package's own.
"""

import random
from collections.abc import Iterator

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fedshot.benchmarks.pil_views import RECIPES, to_tensor
from fedshot.benchmarks.plain import Measured, PlainClient, images_per_second, torch_set
from fedshot.data.dataset import Labelled
from fedshot.local.work import forget_peak_memory, peak_memory
from fedshot.method import Client
from fedshot.setting import Setting
from fedshot.task import Task

_EVALUATION_BATCH = 256  # of FAFI's release


class Samples(Dataset[tuple[Tensor, ...]]):
    """Images one by one: as they are, or as `views` augmented views; the label comes last."""

    def __init__(self, part: Labelled, task: Task, views: int = 0) -> None:
        pixels = part.images.permute(0, 2, 3, 1).cpu().numpy()  # (N, H, W, channels)
        self.pixels = np.ascontiguousarray(pixels[..., 0] if pixels.shape[3] == 1 else pixels)
        self.labels = part.labels.tolist()
        self.mean, self.std = (torch.tensor(values).view(-1, 1, 1) for values in (task.mean, task.std))
        self.view = RECIPES[task.augmentation]
        self.views = views
        self.draw = random.Random(task.seed)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        picture = Image.fromarray(self.pixels[index])
        shown = [self.view(picture, self.draw) for _ in range(self.views)] or [picture]
        tensors = [to_tensor(each, self.mean, self.std) for each in shown]
        return *tensors, torch.tensor(self.labels[index])


def training_loader(client: Client, views: int) -> DataLoader[tuple[Tensor, ...]]:
    """Batches of (view 1, view 2, labels) in random order."""
    samples = Samples(client.train, client.task, views)
    whole = len(samples) >= client.batch_size
    order = torch.Generator().manual_seed(client.task.seed)
    return DataLoader(samples, client.batch_size, shuffle=True, drop_last=whole, generator=order)


def loading_steps(plain: PlainClient) -> Iterator[int]:
    """Makes views without end and drops them; yields the images of each batch."""
    loader = training_loader(plain.client, plain.views)
    while True:
        for *_, labels in loader:
            yield len(labels)


def training_steps(plain: PlainClient, device: torch.device) -> Iterator[int]:
    """Trains without end; yields the images of each step."""
    loader = training_loader(plain.client, plain.views)
    while True:
        for *views, labels in loader:
            plain.step(torch.cat(views).to(device), labels.to(device))
            yield len(labels)


def evaluation_steps(plain: PlainClient, part: Labelled, device: torch.device) -> Iterator[int]:
    """Evaluates without end; yields the images of each batch."""
    loader = DataLoader(Samples(part, plain.client.task), _EVALUATION_BATCH)
    while True:
        right = 0
        for images, labels in loader:
            plain.model.eval()
            with torch.no_grad():
                found = plain.model(images.to(device)).argmax(1)
            right += int((found == labels.to(device)).sum())
            yield len(labels)


def measure_published(setting: Setting, seconds: float) -> Measured:
    """Training and evaluation are timed apart for a share of the seconds each, and added in the measure of an epoch.

    With n images of a client, m test images, training speed a and evaluation speed b (images/s), an epoch of a client
    takes n/a + (n + m)/b seconds. So the figure needs no whole epoch, and leaves out only copies of models. Loading
    alone is timed too, and only told: no device can make training faster than that.
    """
    device = setting.device
    forget_peak_memory(device)
    with torch_set(products="highest", search=False):
        plain = PlainClient(setting)
        trained = images_per_second(training_steps(plain, device), 0.5 * seconds, device)
        evaluated = images_per_second(evaluation_steps(plain, setting.data.test, device), 0.3 * seconds, device)
        loaded = images_per_second(loading_steps(plain), 0.2 * seconds, device)
    own, test = len(plain.client.train), len(setting.data.test)
    epoch = own / trained + (own + test) / evaluated
    return Measured(
        images_per_second=own / epoch,
        seconds_per_client_epoch=epoch,
        peak_memory_bytes=peak_memory(device),
        note=f"training {trained:,.0f} images/s, evaluation {evaluated:,.0f}, loading alone {loaded:,.0f}",
    )
