"""Encoders that were trained before: from a run of one client, an upload, or a file of weights."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from torch import Tensor, nn

from fedshot.errors import UserError
from fedshot.precision import unpack
from fedshot.store import RunFolder

# of a wrapper; of what others call a model, and its encoder
_PREFIXES = ("module.", "model.", "backbone.", "encoder.")
_SECTION = "weights/"  # of an upload, which has others
_HEADS = ("head", "heads", "fc", "classifier", "linear", "projector", "projection_head", "predictor")  # not read
_COUNTERS = "num_batches_tracked"  # of BatchNorm, which not every file keeps
_RESIDUAL = (  # names of residual networks as torchvision and timm have them
    (r"^conv1\.", "stem.conv."),
    (r"^bn1\.", "stem.norm."),
    (r"^layer(\d)\.", lambda found: f"stages.{int(found[1]) - 1}."),
    (r"\.(?:downsample|shortcut)\.0\.", ".shortcut.conv."),
    (r"\.(?:downsample|shortcut)\.1\.", ".shortcut.norm."),
    (r"\.conv(\d)\.", lambda found: f".body.{int(found[1]) - 1}.conv."),
    (r"\.bn(\d)\.", lambda found: f".body.{int(found[1]) - 1}.norm."),
)


@dataclass(frozen=True, eq=False)
class Pretrained:
    """Weights of an encoder, by the names of its state entries."""

    source: str  # as the user calls it
    encoder: Mapping[str, Tensor]
    content: bytes  # of the file, as it is

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def into(self, encoder: nn.Module) -> None:
        """Gives the weights to an encoder; refuses those of another one."""
        wanted = encoder.state_dict()
        if lacking := [name for name in wanted if name not in self.encoder and not name.endswith(_COUNTERS)]:
            there = next(iter(self.encoder), "nothing")
            raise self._unfit(f"{lacking[0]} is not among them (the first is {there})")
        if strange := sorted(self.encoder.keys() - wanted.keys()):
            raise self._unfit(f"{strange[0]} is among them, which this encoder has not")
        for name, tensor in self.encoder.items():
            if tensor.shape != wanted[name].shape:
                raise self._unfit(f"{name} is {_in_words(tensor)} there and {_in_words(wanted[name])} here")
            if why := _unusable(name, tensor, wanted[name]):
                raise UserError(f"the weights of {self.source} cannot be used: {name} {why}")
        encoder.load_state_dict({**wanted, **self.encoder})

    def _unfit(self, why: str) -> UserError:
        return UserError(
            f"the weights of {self.source} do not fit: {why}; they must be of the same --encoder and norm, for images "
            "of as many channels; of cnn and vit also of about the same size"
        )


def weights_file(given: str) -> Path:
    """The file of weights that is meant: of a run of one client its upload."""
    path = Path(given)
    if not path.is_dir():
        return path
    uploads = sorted(path.glob("clients/*/upload.safetensors"))
    if not RunFolder(path).record.exists():
        raise UserError(f"{given} is not a run that has ended: give a run of one client, or a file of weights")
    if len(uploads) != 1:
        raise UserError(
            f"the run {given} has the uploads of {len(uploads)} clients: name one, as "
            f"{RunFolder(path).upload(0).as_posix()}, or give a run of one client"
        )
    return uploads[0]


def open_pretrained(given: str, known: bool = False, kept: Path | None = None) -> Pretrained:
    """Weights as they are asked for: a run of one client, an upload, or a file of safetensors.

    Args:
        known: whether a run has begun with them.
        kept: where that run keeps its own copy, if it does: the original may be gone, or lie elsewhere.
    """
    if kept is not None and kept.is_file() and (known or not Path(given).exists()):
        return _read(given, kept)
    return _read(given, weights_file(given))


def _read(given: str, file: Path) -> Pretrained:
    try:
        return _content_of(given, file, file.stat().st_mtime_ns)
    except OSError as error:
        raise UserError(
            f"{file} cannot be read: {error.strerror}; pretrained takes a run of one client, or a file of weights"
        ) from None


@lru_cache(maxsize=2)  # the runs of a study share them
def _content_of(given: str, file: Path, changed: int) -> Pretrained:
    content = file.read_bytes()
    try:
        return Pretrained(given, _encoder_in(parse_safetensors(content)), content)
    except (SafetensorError, ValueError):
        raise UserError(
            f"{file} is no file of safetensors; weights of PyTorch become one by `from safetensors.torch import "
            "save_file; save_file(torch.load(FILE, weights_only=True), 'weights.safetensors')`"
        ) from None


def _encoder_in(entries: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The entries of a file that are an encoder's, by their names here; what is neither that nor a head stays.

    A prefix goes where everything but heads has it: of two networks in one file none is taken for the other.
    """
    if sent := _within(entries, _SECTION):
        entries = sent
    for prefix in _PREFIXES:
        if all(_is_head(name) for name in entries if not name.startswith(prefix)):
            entries = _within(entries, prefix) or entries
    named = {_as_here(name): tensor for name, tensor in unpack(entries).items()}
    return {name: tensor for name, tensor in named.items() if not _is_head(name)}


def _within(entries: Mapping[str, Tensor], prefix: str) -> Mapping[str, Tensor]:
    """Entries whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in entries.items() if name.startswith(prefix)}


def _is_head(name: str) -> bool:
    return name.partition(".")[0] in _HEADS


def _as_here(name: str) -> str:
    """The name of a state entry as encoders of this package have it.

    >>> _as_here("layer2.0.downsample.1.weight"), _as_here("layer1.1.bn2.bias"), _as_here("stages.0.1.body.0.norm.bias")
    ('stages.1.0.shortcut.norm.weight', 'stages.0.1.body.1.norm.bias', 'stages.0.1.body.0.norm.bias')
    """
    for pattern, here in _RESIDUAL:
        name = re.sub(pattern, here, name)
    return name


def _unusable(name: str, given: Tensor, wanted: Tensor) -> str:
    """Why a tensor of the right shape cannot be an encoder's; nothing if it can."""
    if wanted.is_floating_point() and not given.is_floating_point():
        return f"is of {str(given.dtype).removeprefix('torch.')}, which is no weight"
    if not given.isfinite().all():
        return "has values that are not finite"
    return "has variances below 0" if name.endswith("running_var") and bool((given < 0).any()) else ""


def _in_words(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "one number"
