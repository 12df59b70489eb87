"""What several tests read: the embedded digits, small partitions of them, quick specs, and runs made once a session."""

import json
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedshot.data.dataset import Dataset
from fedshot.data.digits import load_digits
from fedshot.experiment import run
from fedshot.partition import Partition
from fedshot.record import Record, result_digest
from fedshot.spec import Spec, make_spec
from fedshot.store import RunFolder
from fedshot.task import Task

Holding = tuple[int, Sequence[int]]  # how many samples, of which classes


@dataclass(frozen=True)
class Finished:
    """A run that is over, and its files."""

    record: Record
    folder: RunFolder

    @property
    def uploads(self) -> list[str | None]:
        """The content hash of each client's upload."""
        return [client.upload_sha256 for client in self.record.clients]

    def rows(self, client: int) -> list[dict[str, Any]]:
        """The telemetry of a client, one row an epoch."""
        rows = [json.loads(line) for line in self.folder.telemetry.read_text().splitlines()]
        return [row for row in rows if row["client"] == client]


@pytest.fixture(scope="session", autouse=True)
def one_core() -> Iterator[None]:
    """Sums of a test do not depend on the cores of the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """A shell starts what it runs in the background with the interrupt ignored; a person's terminal does not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load_digits()


@pytest.fixture(scope="session")
def task(digits: Dataset) -> Task:
    return Task(digits.classes, digits.shape, digits.mean, digits.std, encoder="cnn")


@pytest.fixture(scope="session")
def divided(digits: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """The file of a partition of the digits in which each client holds a number of samples of the named classes.

    Samples are handed out in the order of the data set, spread over the classes, disjoint; most belong to nobody.
    """
    labels = digits.train.labels.numpy()

    def make(*holdings: Holding) -> str:
        pools = {label: list(np.flatnonzero(labels == label)) for label in range(digits.classes)}
        indices = [
            np.array([pools[classes[i % len(classes)]].pop(0) for i in range(samples)], dtype=np.int64)
            for samples, classes in holdings
        ]
        file = tmp_path_factory.mktemp("partition") / "partition.json"
        Partition.of(indices, labels, "by hand", {}, digits.classes).save(file)
        return str(file)

    return make


@pytest.fixture(scope="session")
def three_clients(divided: Callable[..., str]) -> str:
    """Several batches with a small last one; a single image left over; two classes in one batch of an odd size."""
    return divided((40, range(6)), (33, range(4, 10)), (17, (1, 8)))


@pytest.fixture(scope="session")
def quick(three_clients: str) -> Callable[..., Spec]:
    """A spec of a method on three small clients for two epochs, all of them in the curve; settings by keyword."""

    def make(method: str, options: dict[str, Any] | None = None, **changes: Any) -> Spec:
        asked = {"clients": 3, "partition_file": three_clients, "epochs": 2, "batch_size": 16, **changes}
        asked.setdefault("evaluate_at", tuple(range(1, asked["epochs"] + 1)))
        return make_spec(method=method, options=options or {}, **asked)

    return make


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Spec], Finished]:
    """The run of a spec, made when it is first asked for and shared by all tests of the session."""
    runs: dict[str, Finished] = {}

    def get(spec: Spec) -> Finished:
        if spec.sha256 not in runs:
            folder = tmp_path_factory.mktemp("runs") / "run"
            runs[spec.sha256] = Finished(run(spec, folder), RunFolder(folder))
        return runs[spec.sha256]

    return get


@pytest.fixture
def pictures(tmp_path: Path) -> Callable[[int, str], str]:
    """The name of a data set of 20 pictures of noise in two classes, of a side and a mode of PIL."""

    def make(side: int, mode: str) -> str:
        for number in range(20):
            place = tmp_path / "pictures" / "ab"[number % 2]
            place.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(number).integers(0, 256, (side, side, 3), dtype=np.uint8)
            Image.fromarray(pixels).convert(mode).save(place / f"{number}.png")
        return f"folder:{tmp_path / 'pictures'}"

    return make


@pytest.fixture(scope="session")
def rewrite_record() -> Callable[[Path, Callable[[dict[str, Any]], object]], None]:
    """Changes the record in a file as if it had been measured so: its hash fits."""

    def rewrite(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
        content = json.loads(file.read_bytes())
        change(content)
        file.write_text(json.dumps(content | {"result_sha256": result_digest(content)}))

    return rewrite
