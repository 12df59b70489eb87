"""Speed from the moments at which epochs end."""

import pytest

from fedshot.benchmarks import packaged
from fedshot.benchmarks.cases import Case
from fedshot.benchmarks.packaged import FEWEST_EPOCHS, Stamp, Timed, measure_package, steady_epochs, timed_run
from fedshot.benchmarks.scaling import Point, scaling_points
from fedshot.experiment import Execution


def stamps(client: int, begin: float, *durations: float, samples: int = 100) -> list[Stamp]:
    """A client that begins at a moment and takes these seconds for its epochs."""
    ends = [begin + sum(durations[: i + 1]) for i in range(len(durations))]
    return [Stamp(client, samples, epoch, at) for epoch, at in enumerate(ends, start=1)]


def seconds(epochs: list[tuple[Stamp, Stamp]]) -> list[float]:
    return [end.at - begin.at for begin, end in epochs]


def test_one_after_the_other_counts_the_middle_of_each_client():
    """Start-up, the second epoch and the one with the upload are left out, of every client."""
    both = stamps(0, 0, 9, 5, 1, 1, 7) + stamps(1, 23, 9, 5, 1, 1, 7)
    assert seconds(steady_epochs(both, side_by_side=1)) == [1, 1, 1, 1]


def test_side_by_side_counts_only_while_all_are_busy():
    """The second client joins late: what the first did before the other's second epoch had no company."""
    first = stamps(0, 0, 1, 1, 1, 1, 2, 2, 2, 1)  # two epochs end while the other starts up
    second = stamps(1, 2, 1, 1, 2, 2, 2, 2, 1, 1)
    counted = steady_epochs(first + second, side_by_side=2)
    assert min(begin.at for begin, _ in counted) == 4  # the second client's second epoch ends
    assert max(end.at for _, end in counted) <= 11  # the first client ends
    assert seconds(counted) == [2] * 6


def test_waves_of_clients_count_until_a_lane_runs_dry():
    """Three clients in two lanes: from the second end on, one lane is empty."""
    found = stamps(0, 0, *[1] * 5) + stamps(1, 0, *[1] * 5) + stamps(2, 5, *[0.5] * 5)
    counted = steady_epochs(found, side_by_side=2)
    assert {end.client for _, end in counted} == {0, 1}


@pytest.mark.parametrize("epochs", [1, FEWEST_EPOCHS - 1])
def test_too_few_epochs_are_refused(epochs):
    with pytest.raises(ValueError, match=f"needs 1 clients and {FEWEST_EPOCHS} epochs"):
        steady_epochs(stamps(0, 0, *[1] * epochs), side_by_side=1)
    with pytest.raises(ValueError, match="needs 2 clients"):
        steady_epochs(stamps(0, 0, *[1] * FEWEST_EPOCHS), side_by_side=2)


def test_speed_and_start_up(monkeypatch, case: Case):
    """Two lanes of 100 images in 2 s are 100 images/s; the first epoch took 12 s, of which 10 are start-up."""
    timed = timed_run(case.spec(epochs=1), Execution())
    found = stamps(0, 0, 12, 2, 2, 2, 2) + stamps(1, 0, 12, 2, 2, 2, 2)
    fake = Timed(timed.record, -0.0, tuple(found), 1)
    monkeypatch.setattr(packaged, "timed_run", lambda spec, execution: fake)
    measured = measure_package(case.spec(epochs=5), Execution(), side_by_side=2)
    assert measured.images_per_second == pytest.approx(100)
    assert measured.startup_seconds == pytest.approx(10)
    assert measured.seconds_per_client_epoch == pytest.approx(20 / 100)  # the clients of the record hold 20 images
    assert measured.peak_memory_bytes == timed.record.cost.peak_memory_bytes


def test_a_run_is_timed_from_outside(case: Case):
    timed = timed_run(case.spec(epochs=FEWEST_EPOCHS), Execution())
    assert [(s.client, s.epoch) for s in timed.stamps] == [
        (k, e) for k in range(2) for e in range(1, FEWEST_EPOCHS + 1)
    ]
    assert all(s.samples == 20 and s.at > timed.began for s in timed.stamps)
    assert timed.training_memory_bytes > 0
    assert len(steady_epochs(timed.stamps, side_by_side=1)) == 2 * (FEWEST_EPOCHS - packaged.UNCOUNTED_EPOCHS)


@pytest.mark.parametrize(("on_gpu", "images"), [(False, 32_000), (True, 64_000)])
def test_points_of_the_scaling(on_gpu, images):
    points = scaling_points(on_gpu, quick=False)
    assert [p.clients for p in points if p.images == images] == [5, 20, 100, 1000]
    assert [p.images for p in points if p.clients == 5] == [images // 4, images // 2, images, 2 * images]
    assert len(set(points)) == len(points)


def test_a_point_is_a_spec():
    spec = Point(20, 1000).spec(epochs=3)
    assert (spec.clients, spec.data, spec.recipe, spec.epochs) == (20, "synthetic:images=1000,test=100", "iid", 3)
