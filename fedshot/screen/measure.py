"""How good the screen is: honest runs on the digits, each attack on one client of each; the table of docs/screen.md.

python -m fedshot.screen.measure --out runs/screen --seeds 4-6
"""

import argparse
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from fedshot.experiment import Execution, run_all
from fedshot.fusion import Member
from fedshot.local.work import one_thread
from fedshot.prepare import prepare
from fedshot.screen import screen
from fedshot.screen.attacks import ATTACKS, poison
from fedshot.server import receive
from fedshot.setting import Setting
from fedshot.spec import make_spec
from fedshot.store import RunFolder, read_spec

METHODS = ("fafi", "fedavg")
ALPHAS = (0.05, 0.5)
CLIENTS = (5, 10)
SECTIONS = {"all sections": None, "weights alone": ("weights",)}


@dataclass(frozen=True)
class Case:
    """One federation: honest, or with one attacker."""

    kind: str
    alpha: float
    sections: str
    attacker: int | None
    suspects: frozenset[int]
    clients: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", default="4-6", help="as 4-6")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    print(table(list(cases(given.out, range(int(first), int(last or first) + 1)))))


def cases(out: Path, seeds: Sequence[int]) -> Iterator[Case]:
    """Every federation, honest and attacked; runs that are there are used again."""
    wanted = {
        out / f"{method}-{alpha}-{clients}-{seed}": make_spec(
            method=method, alpha=alpha, clients=clients, seed=seed, epochs=20
        )
        for method, alpha, clients, seed in product(METHODS, ALPHAS, CLIENTS, seeds)
    }
    run_all([(spec, path) for path, spec in wanted.items()], Execution(workers=os.cpu_count() or 1, resume=True))
    for path in wanted:
        setting = prepare(read_spec(RunFolder(path).spec))
        attacker = _of_middle_size(setting)
        yield from _looked_at(setting, RunFolder(path), "none", None)
        for kind in ATTACKS:
            folder = RunFolder(out / "attacked" / path.name / kind)
            if not folder.path.exists():
                shutil.copytree(path, folder.path)
                with one_thread(setting.device):
                    poison(setting, folder, attacker, kind)
            yield from _looked_at(setting, folder, kind, attacker)


def table(found: Sequence[Case]) -> str:
    """Markdown: for each attack how often the attacker is suspected, and how many of the others are."""
    lines = [
        "| attack | α | uploads carry | attackers found | honest clients suspected |",
        "|---|---|---|---|---|",
    ]
    for kind, alpha, sections in product(("none", *ATTACKS), ALPHAS, SECTIONS):
        some = [c for c in found if (c.kind, c.alpha, c.sections) == (kind, alpha, sections)]
        attacked = sum(case.attacker is not None for case in some)
        caught = sum(case.attacker in case.suspects for case in some)
        honest = sum(case.clients - (case.attacker is not None) for case in some)
        alarms = sum(len(case.suspects - {case.attacker}) for case in some)
        share = f"{caught} of {attacked}" if attacked else "–"
        lines.append(f"| {kind} | {alpha} | {sections} | {share} | {alarms} of {honest} |")
    return "\n".join(lines)


def _looked_at(setting: Setting, folder: RunFolder, kind: str, attacker: int | None) -> Iterator[Case]:
    members = receive(setting, folder, ("weights",)).members
    for name, sections in SECTIONS.items():
        seen = members if sections is None else [Member(m.upload.only(sections), m.load) for m in members]
        suspects = screen(seen, setting).suspects
        yield Case(kind, setting.spec.alpha, name, attacker, frozenset(suspects), len(members))


def _of_middle_size(setting: Setting) -> int:
    sizes = Counter(dict(enumerate(setting.partition.sizes)))
    return sizes.most_common()[len(sizes) // 2][0]


if __name__ == "__main__":
    main()
