"""One client's whole work, wherever it runs: train alone, write the one upload (and snapshots) to the run's folder."""

import resource
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fedshot.departure import Departure, Flat, flattened
from fedshot.local.arrival import Arrival
from fedshot.local.background import in_background
from fedshot.local.checkpoint import Checkpoint
from fedshot.local.statistics import accuracy, evidence_of, nearest_mean_agreement, statistics
from fedshot.local.telemetry import Row
from fedshot.local.train import Bench, TrainingDiverged, steps
from fedshot.method import Client
from fedshot.models import Classifier
from fedshot.models.copies import frozen
from fedshot.privacy.client import Told, guarantee, kept_told, told, told_row, told_state, training_of
from fedshot.privacy.counts import sections_told
from fedshot.sections import Evidence
from fedshot.setting import Setting
from fedshot.spec import Spec
from fedshot.store import ClientSummary, RunFolder
from fedshot.upload import Header, Upload

CHECKPOINT_SECONDS = 60.0  # between two files from which an interrupted client goes on


def train_client(setting: Setting, number: int, folder: RunFolder, tell: Callable[[int], None]) -> ClientSummary:
    """Trains one client and leaves its files in the folder; `tell(epoch)` is called after each epoch."""
    working = client_work(setting, number, folder, tell, Bench())
    with one_thread(setting.device):
        while True:
            try:
                next(working)
            except StopIteration as end:
                return end.value


def client_work(
    setting: Setting,
    number: int,
    folder: RunFolder,
    tell: Callable[[int], None],
    bench: Bench,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Generator[bool, None, ClientSummary]:
    """The same in steps, between which others may work; yields False where it waits for the device or the disk."""
    client = setting.client(number, folder.read_job(setting.device), bench.copy)
    if isinstance(client, str):
        samples = len(setting.partition.indices[number])
        summary = ClientSummary(id=number, samples=samples, skipped=client)
        folder.finish_client(summary, [])
        return summary
    spec, method, skipped = setting.spec, setting.method, None
    ending: Ending | None = None
    checkpoint = Checkpoint(folder.checkpoint(number), checkpoint_seconds)
    forget_peak_memory(setting.device)
    numbers = kept_told(client, spec, folder.client(number) / "told.json")

    def at_epoch(epoch: int, model: Classifier | None, row: Row) -> None:
        nonlocal ending
        row["nearest_mean_agreement"] = None
        if model is not None and epoch == spec.epochs:
            ending = Ending.of(setting, client, model, numbers, row, bench)
        elif model is not None:
            folder.write_upload(upload_of(setting, client, model, setting.fusion.needs, numbers), epoch)
        told_row(row, spec)
        tell(epoch)

    objective, bench = training_of(method, client, spec, numbers.class_counts, bench)
    try:
        yield from steps(client, objective, method.views, spec, at_epoch, bench, checkpoint)
    except TrainingDiverged as end:
        told_row(end.row, spec)
        checkpoint.rows.append(end.row)
        skipped = str(end)
    while ending is not None and not ending.ready():
        yield False

    def leave() -> ClientSummary:
        if ending is not None:
            folder.write_upload(ending.complete(spec))
        summary = ClientSummary(
            id=number,
            samples=numbers.samples,
            validation_samples=numbers.validation_samples,
            seconds=checkpoint.seconds,
            peak_memory_bytes=peak_memory(setting.device),
            not_captured=bench.refusal,
            skipped=skipped,
            spent=guarantee(spec, client),
        )
        folder.finish_client(summary, checkpoint.rows)
        checkpoint.drop()
        return summary

    return (yield from in_background(leave, setting.device))


@dataclass(frozen=True)
class Ending:
    """What a trained client leaves, on its way from the device."""

    upload: Departure
    agreement: Arrival | None  # a number of images; None for a client of one class
    images: int
    row: Row  # of the last epoch, in which the agreement belongs

    @classmethod
    def of(cls, setting: Setting, client: Client, model: Classifier, numbers: Told, row: Row, bench: Bench) -> "Ending":
        """Lets the device compute all of it, and does not wait."""
        features = bench.features(client, model)

        def leaving(client: Client) -> tuple[list[Flat], Tensor]:
            evidence = evidence_of(client, model, setting.sizes, features)
            flats = flats_of(setting, client, model, setting.method.statistics, evidence)
            return flats, nearest_mean_agreement(evidence)

        flats, agreeing = bench.end(client, leaving)
        several = sum(count > 0 for count in client.class_counts) > 1
        upload = Departure(header_of(setting, client, model, numbers), flats)
        return cls(upload, Arrival(agreeing) if several else None, len(client.train), row)

    def ready(self) -> bool:
        """Whether all of it is there."""
        return self.upload.ready() and (self.agreement is None or self.agreement.ready())

    def complete(self, spec: Spec) -> Departure:
        """What is sent; the row is completed."""
        if self.agreement is not None:
            self.row["nearest_mean_agreement"] = int(self.agreement.wait()) / self.images
        told_row(self.row, spec)
        return self.upload


def upload_of(
    setting: Setting,
    client: Client,
    model: Classifier,
    sections: Collection[str],
    numbers: Told | None = None,
) -> Upload:
    """What a client would send now. A live model is copied, never touched."""
    return departure_of(setting, client, model, sections, numbers).wait()


def departure_of(
    setting: Setting,
    client: Client,
    model: Classifier,
    sections: Collection[str],
    numbers: Told | None = None,
) -> Departure:
    """The same on its way from the device, for which nobody waits.

    Args:
        numbers: what the client tells of how much it holds, where that was settled before.
    """
    still = frozen(model)
    header = header_of(setting, client, still, numbers or told(client, setting.spec))
    return Departure(header, flats_of(setting, client, still, sections))


def header_of(setting: Setting, client: Client, still: Classifier, numbers: Told) -> Header:
    """What an upload says in so many words; a client that held images back waits for the device."""
    spec = setting.spec
    scored = client.validation if spec.dp_noise is None else None  # a share of images without noise
    return Header(
        client=client.id,
        samples=numbers.samples,
        class_counts=numbers.class_counts,
        method=setting.method.name,
        precision=spec.upload_precision,
        validation_accuracy=accuracy(client, still, scored) if scored else None,
        counts=spec.counts,
    )


def flats_of(
    setting: Setting, client: Client, still: Classifier, sections: Collection[str], evidence: Evidence | None = None
) -> list[Flat]:
    """The tensors of an upload, on the device.

    Args:
        evidence: what the client's images are to the model, where that is known already.
    """
    spec, sections = setting.spec, sections_told(sections, setting.spec)
    known = {name: section for name, section in setting.method.statistics.items() if name in sections}
    made = statistics(evidence or evidence_of(client, still, setting.sizes), known) if known else {}
    return flattened({"weights": told_state(still.state_dict(), spec), **made}, spec.upload_precision)


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """One thread on the CPU: sums do not depend on how many cores or workers there are, so results are bit-equal."""
    if device.type != "cpu":
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def forget_peak_memory(device: torch.device) -> None:
    """Starts the measurement of `peak_memory` anew, where the system allows it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")


def peak_memory(device: torch.device) -> int:
    """Bytes at the highest point since `forget_peak_memory`: of the device's tensors, or of this process on the CPU.

    A system without /proc gives the peak of the process since it began.
    """
    if device.type == "cuda":
        stats = torch.cuda.memory_stats_as_nested_dict(device)  # torch's own shorthand sorts all of them
        return stats["allocated_bytes"]["all"]["peak"]
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
