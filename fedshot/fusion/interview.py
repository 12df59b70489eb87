"""Many models about many images in bounded memory."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fedshot.fusion.memory import ASKED_BYTES, OnDemand
from fedshot.fusion.outputs import Encoded, Outputs, ask
from fedshot.models import Classifier
from fedshot.models.split import Base, SplitEncoder
from fedshot.task import Task

Panel = tuple[Sequence[Classifier], nn.Module | None]  # the models of one predictor, and its look

_BATCH = 500  # images through a model at once on the CPU
_BATCH_PIXELS = 2**20  # the same on a GPU, in pixels: 1,024 images of 32x32; more is hardly faster


class Interview:
    """Asks panels of models about all images, in batches.

    As many batches as fit `ASKED_BYTES`, with what shared bases make of them and all models say about them, make a
    group. Within a group the images are prepared once and each model is loaded once; panels of the same models are one.
    Where one group holds everything, nothing is asked twice, however often the answers are read.
    """

    def __init__(self, panels: Mapping[str, Panel], images: Tensor, task: Task) -> None:
        # a list becomes a tuple, so that panels can be compared; what is on demand stays so
        self._panels: dict[str, Panel] = {
            name: (models if isinstance(models, OnDemand) else tuple(models), look)
            for name, (models, look) in panels.items()
        }
        self._images, self._task = images, task
        self._groups = self._plan()
        self._everything: dict[str, list[Outputs]] | None = None

    def with_one(self, name: str) -> Iterator[Outputs]:
        """What one panel says about each batch."""
        for group in self._groups:
            yield from self._said(group, [name])[name]

    def with_all(self) -> Iterator[tuple[slice, dict[str, Outputs]]]:
        """Where each batch lies among the images, and what every panel says about it."""
        for group in self._groups:
            yield from self._with_all_in(group)

    def _with_all_in(self, group: Sequence[slice]) -> Iterator[tuple[slice, dict[str, Outputs]]]:
        said = self._said(group, self._panels)  # gone before the next group is asked
        for number, batch in enumerate(group):
            yield batch, {name: outputs[number] for name, outputs in said.items()}

    def _plan(self) -> list[list[slice]]:
        """Groups of batches."""
        floats = math.prod(self._task.shape)  # for each image
        bases = set[Base]()
        for models, look in set(self._panels.values()):
            floats += self._seen_by(look)
            if not len(models):
                continue
            first = models[0]
            floats += len(models) * (first.width + self._task.classes)
            if isinstance(first.encoder, SplitEncoder):  # all models of a panel share one base
                bases.add(first.encoder.base)
        floats += sum(self._made_by(base) for base in bases)
        kind = self._images.device.type
        room = ASKED_BYTES[kind] // (4 * floats)
        most = _BATCH if kind == "cpu" else _BATCH_PIXELS // math.prod(self._task.shape[1:])
        size = max(1, min(most, room))
        total, together = len(self._images), max(1, room // size)
        batches = [slice(start, min(start + size, total)) for start in range(0, total, size)]
        return [batches[start : start + together] for start in range(0, len(batches), together)]

    def _seen_by(self, look: nn.Module | None) -> int:
        """How many floats a look sees in one image."""
        return 0 if look is None else look(self._task.prepare(self._images[:1])).numel()

    @torch.no_grad()
    def _made_by(self, base: Base) -> int:
        """How many floats a base makes of one image."""
        return base(self._task.prepare(self._images[:1])).numel()

    def _said(self, group: Sequence[slice], names: Collection[str]) -> dict[str, list[Outputs]]:
        if len(self._groups) > 1:
            return self._ask(group, names)
        if self._everything is None:
            self._everything = self._ask(group, self._panels)
        return self._everything

    def _ask(self, group: Sequence[slice], names: Collection[str]) -> dict[str, list[Outputs]]:
        batches = [self._task.prepare(self._images[batch]) for batch in group]
        encoded: Encoded = WeakKeyDictionary()
        about = f"images {group[0].start + 1:,} to {group[-1].stop:,} of {len(self._images):,}"
        said: dict[Panel, list[Outputs]] = {}
        for name in names:
            panel = self._panels[name]
            models, look = panel
            said[panel] = said.get(panel) or ask(models, batches, encoded, look, about)
        return {name: said[self._panels[name]] for name in names}
