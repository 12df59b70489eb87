"""What a study has to do: every cell prepared, its folder named after the hash of its complete spec, its state read.

Whatever is wrong with any cell is told for all of them at once, before anything is trained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedshot.errors import UserError
from fedshot.prepare import prepare
from fedshot.record import read_record
from fedshot.setting import Setting
from fedshot.sharing import Sharer, by_family, donor_of, takers
from fedshot.spec import Spec
from fedshot.store import RunFolder, read_spec
from fedshot.study.grid import Cell, varying

State = Literal["new", "part", "done"]
_NAME_LENGTH = 16  # hexadecimal digits, 64 bits; a folder that holds another spec is refused all the same


@dataclass(frozen=True)
class Planned:
    """One run of a study."""

    cell: Cell
    spec: Spec  # complete
    folder: Path
    state: State
    sizes: tuple[int, ...]  # samples of each client
    finished: tuple[int, ...]  # clients that need not train again
    shared: tuple[int, ...] = ()  # clients that come from a run that differs in the fusion rule alone

    @property
    def to_train(self) -> tuple[int, ...]:
        """Clients that this run still has to train."""
        return tuple(k for k in range(len(self.sizes)) if k not in self.finished and k not in self.shared)

    @property
    def work(self) -> int:
        """Samples times epochs that are still to be trained."""
        return self.spec.epochs * sum(self.sizes[k] for k in self.to_train)

    @property
    def label(self) -> str:
        """The method as typed."""
        return str(self.cell.at["method"])


def folder_of(spec: Spec, out: Path) -> Path:
    """Where the run of a complete spec lies; the same for every study that shares `out`."""
    return out / "runs" / spec.sha256[:_NAME_LENGTH]


def stored(out: Path) -> list[Path]:
    """The folders of all runs that lie in `out`, of whatever study."""
    return sorted(out.glob("runs/*"))


def make_plan(
    cells: Sequence[Cell], out: Path, data_root: Path | None, device: str = "cpu", meant_for: str | None = None
) -> list[Planned]:
    """All cells, or a UserError that names every problem with the axes that cause it.

    Args:
        device: where the plan is checked.
        meant_for: where it will be run, if that is another device, perhaps of another machine.
    """
    planned: dict[int, Planned] = {}
    sharers: dict[int, Sharer] = {}
    problems: dict[str, list[Cell]] = {}
    for number in sorted(range(len(cells)), key=lambda number: str(cells[number].at.get("data"))):  # data are kept
        try:
            planned[number], sharers[number] = _plan(cells[number], out, data_root, device, meant_for or device)
        except UserError as error:
            problems.setdefault(str(error), []).append(cells[number])
        except Exception as error:  # a method of the user's own may raise anything
            problems.setdefault(f"{type(error).__name__}: {error}", []).append(cells[number])
    if problems:
        raise UserError(told(problems, cells))
    shared = _shared({n: sharers[n] for n in range(len(cells)) if planned[n].state != "done"}, stored(out))
    return [replace(planned[number], shared=shared.get(number, ())) for number in range(len(cells))]


def _plan(cell: Cell, out: Path, data_root: Path | None, device: str, meant_for: str) -> tuple[Planned, Sharer]:
    asked = cell.spec()
    if meant_for.startswith("cuda") and asked.precision is None:  # what `prepare` would choose there
        asked = asked.model_copy(update={"precision": "bf16"})
    setting = _prepared(asked, out, data_root, device)
    folder = RunFolder(folder_of(setting.spec, out))
    if not _only_begun(folder):
        folder.check(setting.spec)
        folder.check_version()
    sizes, sharer = tuple(int(size) for size in setting.partition.sizes), Sharer.of(setting, folder)
    if read_record(folder.record) is not None:
        return Planned(cell, setting.spec, folder.path, "done", sizes, tuple(range(len(sizes)))), sharer
    setting.rehearse()
    finished = tuple(k for k in range(setting.spec.clients) if folder.complete(k, setting.spec))
    begun = any(folder.path.glob("clients/*/*"))
    return Planned(cell, setting.spec, folder.path, "part" if begun else "new", sizes, finished), sharer


def _prepared(asked: Spec, out: Path, data_root: Path | None, device: str) -> Setting:
    """What a run is given; where the weights to start from are gone, by the copy of them that the run itself keeps."""
    if asked.pretrained is not None and not Path(asked.pretrained).exists():
        for place in stored(out):
            kept = RunFolder(place).pretrained
            begun = read_spec(RunFolder(place).spec) if kept.is_file() and RunFolder(place).spec.is_file() else None
            if begun and all(getattr(begun, name) == getattr(asked, name) for name in ("pretrained", "seed", "data")):
                setting = prepare(asked, data_root, device, kept)
                if folder_of(setting.spec, out) == place:
                    return setting
    return prepare(asked, data_root, device)  # which tells what is missing


def _shared(runs: Mapping[int, Sharer], donors: Sequence[Path]) -> dict[int, tuple[int, ...]]:
    """Of each run the clients that it need not train, since another run has trained them or will."""
    known = by_family(donors)
    to_train = {n: frozenset(k for k in run.lacking if not donor_of(run, k, known)) for n, run in runs.items()}
    found: dict[int, tuple[int, ...]] = {}
    for trainer, others in takers(runs, to_train).items():
        for number in others:  # a run may be asked for twice, under two names
            itself = runs[number].folder.path == runs[trainer].folder.path
            found[number] = tuple(sorted(runs[number].lacking - (to_train[number] if itself else frozenset())))
    return found


def _only_begun(folder: RunFolder) -> bool:
    """Whether a run was killed before its first file had its name."""
    return folder.path.is_dir() and not folder.spec.exists() and all(f.suffix == ".part" for f in folder.path.iterdir())


def clear_begun(path: Path) -> None:
    """Drops what such a run left: its folder would be taken for something else. Only the holder of the lock may."""
    if _only_begun(RunFolder(path)):
        for part in path.iterdir():
            part.unlink(missing_ok=True)


def told(problems: Mapping[str, Sequence[Cell]], cells: Sequence[Cell]) -> str:
    """All problems, each with its cause and the number of runs that it stops."""
    stopped = sum(len(found) for found in problems.values())
    lines = [f"{cause(found, cells)} ({_runs(len(found))}): {error}" for error, found in problems.items()]
    return "\n  ".join([f"{stopped} of {_runs(len(cells))} cannot be prepared; nothing was trained", *lines])


def cause(found: Sequence[Cell], cells: Sequence[Cell]) -> str:
    """The value of an axis that these cells have and no others; else all that they share and others do not.

    >>> grid = [Cell({"method": method, "alpha": alpha}) for method in ("fafi", "faffi") for alpha in (0.1, 1.0)]
    >>> cause(grid[2:], grid), cause(grid[3:], grid), cause(grid, grid)
    ('method = faffi', 'method = faffi, alpha = 1.0', 'every run')
    """
    shared = [axis for axis in varying([cell.at for cell in cells]) if not _differ(axis, found)]
    values: dict[str, Any] = {axis: found[0].at.get(axis) for axis in shared}
    for axis, value in values.items():
        if sum(cell.at.get(axis) == value for cell in cells) == len(found):
            return f"{axis} = {value}"
    if not values and len(found) < len(cells):
        return f"{found[0].at['method']} seed {found[0].at['seed']} and others"
    return ", ".join(f"{axis} = {value}" for axis, value in values.items()) or "every run"


def _differ(axis: str, cells: Sequence[Cell]) -> bool:
    return len({repr(cell.at.get(axis)) for cell in cells}) > 1


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
