"""Work that is recorded and replayed, with a recorder in the place of the GPU's."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedshot.local.capture import Capture, CaptureRefused
from fedshot.local.train import Bench
from fedshot.method import Client
from fedshot.prepare import prepare
from fedshot.spec import Spec

Quick = Callable[..., Spec]


class Recorder:
    """A CUDA graph that only counts."""

    replayed = 0

    def capture_begin(self, pool: object, capture_error_mode: str) -> None:
        pass

    def capture_end(self) -> None:
        pass

    def replay(self) -> None:
        Recorder.replayed += 1


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recorder)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(Recorder, "replayed", 0)
    return Recorder


@pytest.mark.parametrize("after", [1, 3])
def test_work_is_captured_after_so_many_runs_and_its_result_kept(after: int, recorder: type[Recorder]) -> None:
    done: list[str] = []
    capture = Capture(after=after)

    def work(name: str) -> list[str]:
        done.append(name)
        return [name]

    results = [capture("key", lambda: work("one")) for _ in range(after + 3)]
    assert done == ["one"] * (after + 1), "as it is, then once to record it"
    assert recorder.replayed == 3
    assert results[-1] is results[-2] is results[-3]
    assert capture("other", lambda: work("two")) == ["two"] and done[-1] == "two"


def test_work_that_cannot_be_captured_is_refused_with_its_reason(recorder: type[Recorder]) -> None:
    def reads_back() -> None:
        raise RuntimeError("cannot read\nwhile capturing")

    capture = Capture(after=0)
    with pytest.raises(CaptureRefused, match=r"^cannot read$") as refusal:
        capture("key", reads_back)
    assert refusal.value.state is None and recorder.replayed == 0


class Ends:
    """What captures the ends of clients, looked at."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses, self.keys = refuses, list[object]()

    def __call__(self, key: object, work: Callable[[], Any]) -> Any:
        self.keys.append(key)
        if self.refuses:
            raise CaptureRefused("reads a value back", None)
        return work()


def at_its_end(spec: Spec, ends: Any) -> tuple[Bench, Client]:
    setting, bench = prepare(spec), Bench()
    client = setting.client(0)
    assert isinstance(client, Client)
    bench.take(client, setting.method.objective(client), setting.method.views, setting.spec)
    bench._ends = ends
    return bench, client


def test_the_end_of_a_client_reads_data_that_keep_their_place(quick: Quick) -> None:
    ends = Ends()
    bench, client = at_its_end(quick("fafi"), ends)
    moved = replace(client, train=client.train[torch.arange(len(client.train))])  # the same images elsewhere
    handed = bench.end(moved, lambda own: own)
    assert handed.train.images.data_ptr() == client.train.images.data_ptr() != moved.train.images.data_ptr()
    assert torch.equal(handed.train.labels, moved.train.labels) and ends.keys == [len(client.train)]


def test_a_client_that_holds_images_back_ends_as_it_is(quick: Quick) -> None:
    ends = Ends()
    bench, client = at_its_end(quick("fafi", validation=0.2), ends)
    assert bench.end(client, lambda own: own) is client and not ends.keys


def test_an_end_that_cannot_be_captured_is_not_tried_again(quick: Quick) -> None:
    ends = Ends(refuses=True)
    bench, client = at_its_end(quick("fafi"), ends)
    assert [bench.end(client, lambda own: own) for _ in range(2)] == [client, client]
    assert len(ends.keys) == 1
