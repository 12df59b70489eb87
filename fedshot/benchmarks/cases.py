"""What is measured, as values: a workload, and the loops that do its work."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fedshot.data.catalogue import SOURCES
from fedshot.data.locate import data_root, locate
from fedshot.errors import unknown
from fedshot.spec import Spec, make_spec

Loop = Literal["published", "eager", "fedshot"]


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    workload: str
    row: str
    loop: Loop
    data: str
    encoder: str
    batch_size: int
    clients: int = 5
    side_by_side: int = 1  # lanes on a GPU, worker processes on a CPU
    fused: bool = False  # BatchNorm and what follows it as one kernel, on a GPU
    precision: Literal["fp32", "bf16"] | None = None  # of the encoder in training; None: the default of the device

    @property
    def name(self) -> str:
        return f"{self.workload}/{self.row}"

    def spec(self, epochs: int) -> Spec:
        """FAFI on alike clients at a constant learning rate: what is measured is speed."""
        return make_spec(
            method="fafi",
            data=self.data,
            clients=self.clients,
            recipe="iid",
            encoder=self.encoder,
            batch_size=self.batch_size,
            epochs=epochs,
            schedule="constant",
            precision=self.precision,
        )


def cases_on_gpu(quick: bool) -> list[Case]:
    """ResNet-18 on images like those of CIFAR, with the published batch size and with one an eighth of it."""
    data = "synthetic:images=10000" if quick else "synthetic"
    found = []
    for batch in (512, 64):
        base = Case(f"resnet18-{batch}", "published", "published", data, "resnet18", batch)
        found += _references(base)
        for lanes in (1, 2, base.clients):
            ours = replace(base, row=f"lanes-{lanes}", loop="fedshot", side_by_side=lanes)
            fused = replace(ours, row=f"{ours.row}-fused", fused=True)
            found += [fused] if quick or lanes == 2 else [ours, fused]
    return found


def cases_on_cpu(quick: bool, cores: int, root: Path | None = None) -> list[Case]:
    """The embedded digits, and small colour images: of CIFAR-10 where it is at hand, else made."""
    colour = "cifar10" if locate(SOURCES["cifar10"], data_root(root)) else "synthetic"
    bases = [Case("digits", "published", "published", "digits", "cnn", 32)]
    if not quick:
        bases.append(Case(colour, "published", "published", f"{colour}:images=5000", "cnn", 32))
    found = []
    for base in bases:
        found += _references(base)
        for workers in sorted({1, min(cores, base.clients)}):
            found.append(replace(base, row=f"workers-{workers}", loop="fedshot", side_by_side=workers))
        found.append(replace(found[-1], row=f"{found[-1].row}-bf16", precision="bf16"))
    return found


def _references(base: Case) -> list[Case]:
    return [base, replace(base, row="eager", loop="eager")]


def choose(cases: Sequence[Case], only: Sequence[str]) -> list[Case]:
    """The cases that are named: by their whole name, their workload or their row; all if none is.

    >>> [case.name for case in choose(cases_on_cpu(quick=True, cores=1), ["eager"])]
    ['digits/eager']
    """
    known = {word for case in cases for word in (case.name, case.workload, case.row)}
    for word in only:
        if word not in known:
            raise unknown("case", word, known)
    return [case for case in cases if not only or {case.name, case.workload, case.row} & set(only)]
