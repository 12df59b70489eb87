"""What training costs as clients or images become many: seconds for a million views, and memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fedshot.benchmarks.ground import Ground, expected_speed, in_one_line, release_memory
from fedshot.benchmarks.packaged import timed_run
from fedshot.benchmarks.report import ScalingRow
from fedshot.prepare import prepare
from fedshot.spec import Spec, make_spec

_FEWEST_CLIENTS = 5
_BATCH = 32
_FEWEST_EPOCHS = {"cpu": 2, "cuda": 20}  # a client's first ones hold its start, and real runs have 50 and more
_TEST_IMAGES = 100  # the server asks every client's model about each of them


@dataclass(frozen=True)
class Point:
    """Alike clients that share some images."""

    clients: int
    images: int

    @property
    def name(self) -> str:
        return f"scaling/{self.clients:,} clients, {self.images:,} images"

    def spec(self, epochs: int) -> Spec:
        """FAFI with the small network in batches of 32."""
        return make_spec(
            method="fafi",
            data=f"synthetic:images={self.images},test={_TEST_IMAGES}",
            clients=self.clients,
            recipe="iid",
            encoder="cnn",
            batch_size=_BATCH,
            epochs=epochs,
        )


def scaling_points(on_gpu: bool, quick: bool) -> list[Point]:
    """Five clients with more and more images, then more and more clients that share as many images.

    What needs most memory comes last: a process does not give back all that it once had.

    Every client has a full batch of images at least: smaller ones would cost more for their batches, not their number.

    >>> [(point.clients, point.images) for point in scaling_points(on_gpu=False, quick=True)]
    [(5, 1600), (5, 3200), (20, 3200), (100, 3200)]
    """
    images = _BATCH * (100 if quick else 1_000) * (2 if on_gpu else 1)
    sizes = (images // 2, images) if quick else (images // 4, images // 2, images, 2 * images)
    clients = (20, 100) if quick else (20, 100, 1000)
    return [*(Point(_FEWEST_CLIENTS, size) for size in sizes), *(Point(each, images) for each in clients)]


def scaling_rows(points: Sequence[Point], ground: Ground, begins: Callable[[str], None]) -> Iterator[ScalingRow]:
    """One row for each point. All points with as many images get as many epochs, so that they can be compared."""
    if not points:
        return
    trial = prepare(points[0].spec(epochs=1), ground.data_root, str(ground.device))
    speed = expected_speed(trial, ground)
    for point in points:
        begins(point.name)
        epochs = max(_FEWEST_EPOCHS[ground.device.type], round(ground.seconds * speed / point.images))
        yield _row(point, epochs, trial.method.views.augmented, ground)
        release_memory(ground.device)


def _row(point: Point, epochs: int, views: int, ground: Ground) -> ScalingRow:
    """A point, measured from the moment when training is planned to the end of the last client's last epoch."""
    about = {"clients": point.clients, "images": point.images, "epochs": epochs}
    try:
        timed = timed_run(point.spec(epochs), ground.execution(side_by_side=None, fused=True))
    except Exception as error:
        return ScalingRow(**about, error=in_one_line(error))
    seconds = max(stamp.at for stamp in timed.stamps) - timed.began
    return ScalingRow(
        **about,
        seconds_per_million_views=1e6 * seconds / (epochs * point.images * views),
        training_memory_bytes=timed.training_memory_bytes,
        whole_memory_bytes=timed.record.cost.peak_memory_bytes,
    )
