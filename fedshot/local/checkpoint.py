"""A long client on its way: all that its next epochs depend on, in one file, so that an interrupted one goes on."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from fedshot.local.counterparts import tensors_in
from fedshot.local.step import Training
from fedshot.local.telemetry import Row
from fedshot.store import write_atomic


class Checkpoint:
    """Where a client's training is written every `seconds`, at the end of an epoch; and its telemetry so far.

    A client that goes on from one ends as if it had never stopped, on the CPU to the last bit. A file that is damaged
    or of another build of the model is as good as none: the client begins again.
    """

    def __init__(self, file: Path, seconds: float) -> None:
        self.rows: list[Row] = []
        self.spent = 0.0  # seconds of earlier tries
        self._file, self._seconds = file, seconds
        self._began = self._written = time.perf_counter()

    def restore(self, training: Training) -> int:
        """Brings the training to where it was left; the epochs that are done."""
        try:
            tensors = parse_safetensors(self._file.read_bytes())
        except (FileNotFoundError, SafetensorError):
            return 0
        story = read_story(self._file)
        if story is None or not _fill(training, tensors):
            return 0
        self.rows, self.spent = story.rows, story.seconds
        return story.epoch

    @property
    def due(self) -> bool:
        """Whether the last file is old."""
        return time.perf_counter() - self._written >= self._seconds

    def write(self, training: Training, epoch: int) -> None:
        """Writes the file after an epoch, the rows of which are all there."""
        tensors = _content(training)
        if tensors is None:  # an objective that hides its state cannot be brought back
            return
        about = {"epoch": epoch, "rows": self.rows, "seconds": self.seconds}
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_atomic(self._file, to_safetensors(plain, {"fedshot": json.dumps(about)}))
        self._written = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Spent on the client so far, earlier tries included."""
        return self.spent + time.perf_counter() - self._began

    def drop(self) -> None:
        """The client has ended: nothing is left to go on from."""
        self._file.unlink(missing_ok=True)


@dataclass(frozen=True)
class Story:
    """How far a client had come when its checkpoint was written."""

    epoch: int
    rows: list[Row]  # telemetry, one an epoch
    seconds: float


def read_story(file: Path) -> Story | None:
    """What a checkpoint tells beside its tensors, which are not read; None if there is none, or a damaged one."""
    try:
        with file.open("rb") as opened:
            size = int.from_bytes(opened.read(8), "little")
            about = json.loads(json.loads(opened.read(size))["__metadata__"]["fedshot"])
        return Story(int(about["epoch"]), list(about["rows"]), float(about["seconds"]))
    except (OSError, OverflowError, MemoryError, ValueError, KeyError, TypeError):
        return None


def _content(training: Training) -> dict[str, Tensor] | None:
    """What the next epochs depend on, by name; None where the objective cannot be looked into."""
    held = tensors_in((training.client.model, training.objective))
    if held is None:
        return None
    content = {f"held.{number}": tensor for number, tensor in enumerate(held)}
    for number, parameter in enumerate(_parameters(training)):
        memory = training.optimiser.state.get(parameter, {})
        content |= {f"memory.{number}.{key}": t for key, t in memory.items() if isinstance(t, Tensor)}
    return content | {
        "done": training.done,
        "shuffles": training.shuffles.get_state(),
        "draws": training.draws.get_state(),
    }


@torch.no_grad()
def _fill(training: Training, tensors: dict[str, Tensor]) -> bool:
    """Copies a checkpoint into a training at its start; False, with nothing changed, where the two do not belong."""
    now = _content(training)
    stable = {name: t for name, t in (now or {}).items() if not name.startswith("memory.")}
    if now is None or any(name not in tensors or tensors[name].shape != t.shape for name, t in stable.items()):
        return False
    parameters = _parameters(training)
    for name, tensor in tensors.items():
        if name.startswith("memory."):
            _, number, key = name.split(".", 2)
            parameter = parameters[int(number)]
            memory = training.optimiser.state[parameter]
            if key not in memory:
                memory[key] = torch.empty_like(tensor if tensor.ndim == 0 else parameter, device=parameter.device)
            memory[key].copy_(tensor)  # in its place: captured steps may read it there
        elif name not in ("shuffles", "draws"):
            stable[name].copy_(tensor)
    training.shuffles.set_state(tensors["shuffles"])
    training.draws.set_state(tensors["draws"])
    return True


def _parameters(training: Training) -> list[Tensor]:
    return [parameter for group in training.optimiser.param_groups for parameter in group["params"]]
