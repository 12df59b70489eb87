"""A federated run and an in-process run of the same spec and split give equal uploads and an equal record."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedshot.cli import main
from fedshot.federation.site import Site, SiteFile
from fedshot.spec import Spec

Quick = Callable[..., Spec]


def exported(spec: Spec, folder: Path) -> list[Site]:
    """Clients that hold what the command exports of the spec's split."""
    words = ["--clients", str(spec.clients), "--partition-file", str(spec.partition_file)]
    words += ["--public", spec.public] if spec.public else []
    with pytest.raises(SystemExit) as end:
        main(["partition", *words, "--export", str(folder / "shares"), "--json"])
    assert end.value.code == 0
    sites = [Site(folder / f"site-{number}") for number in range(spec.clients)]
    for number, site in enumerate(sites):
        site.write(
            SiteFile(name=f"clinic {number}", number=number, data=str(folder / "shares" / f"share-{number}.npz"))
        )
    return sites


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fafi", {}),
        ("fafi", {"validation": 0.1, "upload_precision": "int8"}),
        ("fafi", {"draws": "batch", "normalisation": "twice", "augmentation": "natural", "momentum_epochs": 1}),
        ("two_stage_bank", {"public": "0.1"}),
        ("split_announced", {"validation": 0.1}),
    ],
)
def test_the_record_of_a_federation_is_that_of_the_run_in_one_process(
    method: str, changes: dict[str, Any], quick: Quick, finished: Callable, federation: Callable, tmp_path: Path
) -> None:
    spec = quick(method, evaluate_at=(), **changes)
    alone = finished(spec)
    made = federation(spec, exported(spec, tmp_path))
    record = made.conduct()
    assert [client.upload_sha256 for client in record.clients] == alone.uploads
    assert record.result_sha256 == alone.record.result_sha256
    assert made.run.telemetry.read_bytes() == alone.folder.telemetry.read_bytes()
