"""A run that is not finished: how far its clients are, also the one that is in the middle of its epochs."""

from collections.abc import Callable
from pathlib import Path

from fedshot.local.train import Bench
from fedshot.local.work import client_work
from fedshot.prepare import prepare
from fedshot.report.underway import under_way
from fedshot.spec import Spec
from fedshot.store import RunFolder


def test_a_long_client_shows_the_epochs_that_it_has_done(quick: Callable[..., Spec], tmp_path: Path) -> None:
    setting = prepare(quick("fafi", epochs=5, evaluate_at=(5,)))
    folder, told = RunFolder(tmp_path / "run"), list[int]()
    folder.begin(setting.spec, resume=False)
    working = client_work(setting, 1, folder, told.append, Bench(), checkpoint_seconds=0.0)
    while 3 not in told:
        next(working)
    next(working)  # the checkpoint is written after the epoch was told
    (found,) = under_way(tmp_path)
    assert found["done"] == 0 and found["epochs"] == "client 1 past 3 of 5"
    assert found["telemetry"]["clients"] == [1] and found["telemetry"]["epochs"] == [[1, 2, 3]]
    folder.checkpoint(1).write_bytes(b"\xff" * 40)  # damaged: as if there were none
    (found,) = under_way(tmp_path)
    assert found["epochs"] == "5 for each client" and found["telemetry"] is None
