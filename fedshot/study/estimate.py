"""What a plan would cost, before anything is trained: from runs that are finished, or from a quick timing."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from fedshot.experiment import Execution
from fedshot.record import Record, read_record
from fedshot.report.wording import bytes_in_words, number_of, seconds_in_words
from fedshot.spec import Spec
from fedshot.store import RunFolder
from fedshot.study.plan import Planned

_TIMING_SECONDS = 1.0
Kind = tuple[str, str | None, str | None, int]  # data, encoder, precision, clients: such runs cost about the same


@dataclass(frozen=True)
class Estimate:
    """A study in numbers. Seconds and bytes are of what is left to do."""

    runs: int
    new: int
    part: int
    done: int
    clients: int  # to train
    shared: int  # clients that come from runs that differ in the fusion rule alone
    sample_epochs: int  # samples times epochs
    seconds: float
    source: str  # where the seconds come from
    disk_bytes: int

    def in_words(self) -> str:
        """For a terminal."""
        shared = f"shared: {number_of(self.shared, 'client')} of runs that differ only in the fusion rule"
        return "\n".join(
            [
                f"{number_of(self.runs, 'run')}: {self.new} new, {self.part} part done, {self.done} done",
                f"to train: {number_of(self.clients, 'client')}, {self.sample_epochs:,} samples × epochs",
                *([shared] if self.shared else []),
                f"time: about {seconds_in_words(self.seconds)} ({self.source})",
                f"disk: about {bytes_in_words(self.disk_bytes)}",
            ]
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def estimate(plan: Sequence[Planned], out: Path, execution: Execution) -> Estimate:
    """Counts, and the cost of what is left."""
    unique = list({planned.folder: planned for planned in plan}.values())
    left = [planned for planned in unique if planned.state != "done"]
    work = sum(planned.work for planned in left)
    known = {file.parent: record for file in sorted(out.glob("runs/*/record.json")) if (record := read_record(file))}
    each, source = _seconds_per_sample(left, list(known.values()), execution)
    size = _bytes_by_kind(left, known, execution)
    states = [planned.state for planned in unique]
    return Estimate(
        runs=len(unique),
        new=states.count("new"),
        part=states.count("part"),
        done=states.count("done"),
        clients=sum(len(planned.to_train) for planned in left),
        shared=sum(len(planned.shared) for planned in left),
        sample_epochs=work,
        seconds=each * work / len(execution.places),
        source=source,
        disk_bytes=sum(size[_kind(planned.spec)] for planned in left if planned.to_train),
    )


def _seconds_per_sample(left: Sequence[Planned], known: Sequence[Record], execution: Execution) -> tuple[float, str]:
    """Of one client's training, for one sample in one epoch."""
    if not left:
        return 0.0, "nothing is left to do"
    first = next((planned for planned in left if planned.state == "new"), left[0])
    alike = [record for record in known if _kind(record.spec) == _kind(first.spec)]
    work = sum(client.samples * record.spec.epochs for record in alike for client in record.clients)
    if work:
        seconds = sum(record.cost.client_seconds + record.cost.server_seconds for record in alike)
        return seconds / work, f"from {number_of(len(alike), 'finished run')} of {first.spec.data} here"
    from fedshot.benchmarks.eager import measure_eager
    from fedshot.local.work import one_thread
    from fedshot.prepare import prepare

    setting = prepare(first.spec, execution.data_root, execution.devices[0], RunFolder(first.folder).pretrained)
    with one_thread(setting.device):
        speed = measure_eager(setting, _TIMING_SECONDS).images_per_second
    timed = f"from a quick timing of a step of {first.label} on {first.spec.data}"
    return 1 / speed, f"{timed}; starting and evaluating take some seconds a run more"


def _bytes_by_kind(left: Sequence[Planned], known: Mapping[Path, Record], execution: Execution) -> dict[Kind, int]:
    """Of a run's folder: as finished runs of the same kind have it, or the weights of its clients."""
    from fedshot.prepare import prepare

    found: dict[Kind, int] = {}
    for kind, planned in {_kind(planned.spec): planned for planned in left}.items():
        sizes = [folder_bytes(folder) for folder, record in known.items() if _kind(record.spec) == kind]
        if not sizes:
            kept = RunFolder(planned.folder).pretrained
            state = prepare(planned.spec, execution.data_root, execution.devices[0], kept).initial_model.state_dict()
            sizes = [planned.spec.clients * sum(tensor.nbytes for tensor in state.values())]
        found[kind] = round(fmean(sizes))
    return found


def _kind(spec: Spec) -> Kind:
    return spec.data, spec.encoder, spec.precision, spec.clients


def folder_bytes(folder: Path) -> int:
    """What a run takes on disk."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
