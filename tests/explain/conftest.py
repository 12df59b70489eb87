"""Runs with a planted failure, trained once a session in a second or two, and loaded for a post-mortem."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedshot.explain.engine import findings_of
from fedshot.explain.finding import Finding
from fedshot.explain.loaded import load
from fedshot.explain.run import Run
from fedshot.spec import Spec, make_spec

Find = Callable[[Run, str], Finding]


@pytest.fixture(scope="session")
def trained(finished: Callable[[Spec], Any]) -> Callable[..., Path]:
    """The folder of a run of these settings; equal settings share one."""

    def get(method: str, options: dict[str, Any] | None = None, **settings: Any) -> Path:
        return finished(make_spec(method=method, options=options or {}, **settings)).folder.path

    return get


@pytest.fixture(scope="session")
def alone(divided: Callable[..., str], trained: Callable[..., Path]) -> Callable[..., Run]:
    """One client with 96 images of six classes, six steps an epoch."""
    file = divided((96, range(6)))

    def get(method: str, epochs: int, options: dict[str, Any] | None = None, **settings: Any) -> Run:
        common = {"clients": 1, "partition_file": file, "batch_size": 16}
        return load(trained(method, options, epochs=epochs, **common, **settings))[0]

    return get


@pytest.fixture(scope="session")
def healthy(trained: Callable[..., Path]) -> Path:
    """FAFI on all digits under mild heterogeneity."""
    return trained("fafi", clients=3, alpha=10.0, epochs=3)


@pytest.fixture(scope="session")
def healthy_run(healthy: Path) -> Run:
    return load(healthy)[0]


@pytest.fixture(scope="session")
def find() -> Find:
    """The only finding of a name in a run."""

    def get(run: Run, name: str) -> Finding:
        found = [finding for finding in findings_of(run) if finding.name == name]
        assert len(found) == 1, [finding.name for finding in findings_of(run)]
        return found[0]

    return get


def with_final(run: Run, **changes: Any) -> Run:
    """A run whose record says something else about the result: fabricated, not trained."""
    return replace(run, record=run.record.model_copy(update={"final": run.record.final.model_copy(update=changes)}))


@pytest.fixture(scope="session")
def claiming() -> Callable[..., Run]:
    return with_final
