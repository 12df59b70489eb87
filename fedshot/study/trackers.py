"""Finished runs for TensorBoard, Weights & Biases or MLflow. A tracker that fails warns once and breaks nothing."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fedshot.errors import UserError, unknown
from fedshot.record import Record
from fedshot.store import RunFolder, write_atomic


class Scalar(NamedTuple):
    """A number and the epoch that it belongs to."""

    name: str
    epoch: int
    value: float


class Exporter(Protocol):
    """Takes one finished run."""

    def export(self, name: str, settings: Mapping[str, Any], scalars: Sequence[Scalar]) -> None:
        """`name` is unique to the run; `settings` is its spec; `scalars` come in the order of epochs."""


class TensorBoard:
    """Event files below OUT/tensorboard."""

    def __init__(self, out: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.make, self.out = SummaryWriter, out / "tensorboard"

    def export(self, name: str, settings: Mapping[str, Any], scalars: Sequence[Scalar]) -> None:
        with self.make(str(self.out / name)) as writer:
            writer.add_text("spec", json.dumps(settings, indent=1))
            for scalar in scalars:
                writer.add_scalar(scalar.name, scalar.value, scalar.epoch)


class WeightsAndBiases:
    """Runs of a project named after the study's folder; files below OUT/wandb."""

    def __init__(self, out: Path) -> None:
        self.start, self.out = import_module("wandb").init, out

    def export(self, name: str, settings: Mapping[str, Any], scalars: Sequence[Scalar]) -> None:
        run = self.start(project=self.out.name, name=name, id=name, dir=str(self.out), config=dict(settings))
        try:
            for epoch in dict.fromkeys(scalar.epoch for scalar in scalars):  # each step is logged once
                run.log({scalar.name: scalar.value for scalar in scalars if scalar.epoch == epoch}, step=epoch)
        finally:
            run.finish()


class MLflow:
    """Runs of an experiment named after the study's folder, at the tracking address that MLflow is set to."""

    def __init__(self, out: Path) -> None:
        self.mlflow, self.out = import_module("mlflow"), out

    def export(self, name: str, settings: Mapping[str, Any], scalars: Sequence[Scalar]) -> None:
        self.mlflow.set_experiment(self.out.name)
        with self.mlflow.start_run(run_name=name):
            self.mlflow.log_params({key: str(value)[:500] for key, value in settings.items()})
            for scalar in scalars:
                self.mlflow.log_metric(scalar.name, scalar.value, step=scalar.epoch)


TRACKERS: dict[str, Callable[[Path], Exporter]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}


class Trackers:
    """The trackers that were asked for. A mark in OUT/tracked keeps a run from being exported twice."""

    def __init__(self, names: Sequence[str], out: Path) -> None:
        self.out = out
        self.exporters: dict[str, Exporter] = {}
        self.warned: set[str] = set()
        for name in dict.fromkeys(names):
            if name not in TRACKERS:
                raise unknown("tracker", name, TRACKERS)
            try:
                self.exporters[name] = TRACKERS[name](out)
            except ImportError:
                raise UserError(f"--track {name}: it is not installed: pip install 'fedshot[{name}]'") from None

    def export(self, folder: Path, record: Record) -> None:
        """Gives a finished run to every tracker that does not have it."""
        for name, exporter in self.exporters.items():
            mark = self.out / "tracked" / name / folder.name
            if mark.exists():
                continue
            try:
                exporter.export(folder.name, record.spec.model_dump(mode="json"), list(scalars_of(record, folder)))
                write_atomic(mark, b"")
            except Exception as error:  # whatever a tracker does, the run is safe
                self._warn(name, error)

    def _warn(self, name: str, error: Exception) -> None:
        if name not in self.warned:
            self.warned.add(name)
            said = f"{type(error).__name__}: {error}".partition("\n")[0]
            print(f"fedshot: warning: {name} failed ({said}); the runs are not affected", file=sys.stderr)


def scalars_of(record: Record, folder: Path) -> Iterator[Scalar]:
    """Telemetry of each client, the curve, and the final figures, in the order of epochs."""
    found = []
    for line in RunFolder(folder).telemetry.read_text().splitlines():
        row = json.loads(line)
        client, epoch = row.pop("client"), row.pop("epoch")
        found += [Scalar(f"client_{client}/{name}", epoch, value) for name, value in row.items() if value is not None]
    for point in record.curve:
        figures = point.model_dump(exclude={"epoch"})
        found += [Scalar(f"curve/{name}", point.epoch, value) for name, value in figures.items()]
    for name, value in record.final.model_dump().items():
        if isinstance(value, float):
            found.append(Scalar(f"final/{name}", record.final.epoch, value))
    yield from sorted(found, key=lambda scalar: scalar.epoch)
