"""Records as runs would leave them, without training."""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fedshot.record import ClientRecord, Cost, Final, Point, Record
from fedshot.spec import make_spec

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=5000"),
)

MakeRecord = Callable[..., Record]


def fabricate(
    method: str = "fafi",
    seed: int = 1,
    curve: Sequence[float] = (0.5, 0.8),
    class_counts: Sequence[Sequence[int]] = ((30, 0, 5), (0, 20, 0)),
    skipped: dict[int, str] | None = None,
    inductive: bool = True,
    phases: int = 1,
    fingerprint: str | None = None,
    findings: Sequence[str] = (),
    **spec: object,
) -> Record:
    """One run whose accuracy at epochs 1, 2, … is the curve. Uploads of client k have 1,000,000 (k + 1) bytes."""
    reasons, sizes = skipped or {}, [sum(row) for row in class_counts]
    classes = len(class_counts[0])
    clients = tuple(
        ClientRecord(
            id=k,
            samples=size,
            validation_samples=0,
            upload_bytes=0 if k in reasons else 1_000_000 * (k + 1),
            upload_sha256=None,
            seconds=1.5,
            accuracy_alone=None if k in reasons else 0.4,
            skipped=reasons.get(k),
        )
        for k, size in enumerate(sizes)
    )
    points = tuple(Point(epoch=n + 1, accuracy=a, balanced_accuracy=a, nll=1.0) for n, a in enumerate(curve))
    return Record(
        spec=make_spec(
            method=method, seed=seed, epochs=len(curve), clients=len(sizes), encoder="cnn", batch_size=32, **spec
        ),
        partition={
            "recipe": "dirichlet",
            "parameters": {"clients": len(sizes), "seed": seed, "alpha": spec.get("alpha", 0.05)},
            "fingerprint": fingerprint or f"{seed:064x}",
            "overlap": 0.0,
            "sizes": sizes,
            "entropy_bits": [1.0] * len(sizes),
            "class_counts": [list(row) for row in class_counts],
            "unassigned": 0,
        },
        clients=clients,
        curve=points,
        final=Final(
            accuracy=curve[-1],
            balanced_accuracy=curve[-1],
            worst_class_accuracy=0.25,
            per_class_accuracy=(None, *[curve[-1]] * (classes - 1)),
            nll=1.0,
            calibration_error=0.125,
            confusion=((0,) * classes,) * classes,
            epoch=len(curve),
            fusion="features",
            inductive=inductive,
            phases=phases,
            oracle_routing=0.9,
        ),
        cost=Cost(
            client_seconds=1.5 * len(sizes),
            slowest_client_seconds=1.5,
            server_seconds=0.25,
            upload_bytes=sum(client.upload_bytes for client in clients),
            peak_memory_bytes=400_000_000,
            models_kept=len(sizes) - len(reasons),
        ),
        versions={"fedshot": "0.1.0", "torch": "2.6"},
        device="cpu",
        commit=None,
        findings=tuple(findings),
    ).sealed()


@pytest.fixture(scope="session")
def make_record() -> MakeRecord:
    return fabricate


@pytest.fixture
def runs() -> dict[str, list[Record]]:
    """Two methods over three seeds; the second is better by 0.01, 0.02 and 0.03."""
    base = {1: 0.80, 2: 0.60, 3: 0.70}
    return {
        "fafi": [fabricate("fafi", seed, (0.5, value)) for seed, value in base.items()],
        "V14": [fabricate("aurora", seed, (0.9, value + seed / 100)) for seed, value in base.items()],
    }


@pytest.fixture
def browse(tmp_path: Path) -> Callable[..., str]:
    """What Chromium prints about an address; its profile is removed."""
    if not CHROMIUM.exists():
        pytest.skip("there is no Chromium")

    def see(address: str, *flags: str) -> str:
        profile = tmp_path / "profile"
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *flags, address]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        finally:
            shutil.rmtree(profile, ignore_errors=True)

    return see
