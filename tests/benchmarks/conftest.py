"""A setting small enough to train in a blink."""

import pytest

from fedshot.benchmarks.cases import Case
from fedshot.prepare import prepare
from fedshot.setting import Setting

TINY = "synthetic:images=40,size=8,test=10"


@pytest.fixture(scope="session")
def case() -> Case:
    """Two clients with 20 images of 8x8 pixels each, in batches of 8."""
    return Case("tiny", "eager", "eager", TINY, "cnn", 8, clients=2)


@pytest.fixture
def setting(case: Case) -> Setting:
    return prepare(case.spec(epochs=1))
