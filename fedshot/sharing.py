"""Runs that differ only in their fusion rule train their clients once, and each keeps the files of them in its folder.

The rule is the server's. One thing that a client does depends on it: a snapshot, which is made to be scored at an
evaluation point, carries only the sections that the rule reads. The upload at the end carries all.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedshot import __version__
from fedshot.data.public import share_of
from fedshot.errors import UserError
from fedshot.own_rule import options_of_rule
from fedshot.setting import Setting
from fedshot.spec import Spec
from fedshot.store import RunFolder, outline_of, read_spec, write_atomic
from fedshot.user_file import file_of

_END = "client.json"  # a client that has one is finished


@dataclass(frozen=True)
class Sharer:
    """A run that may share its clients with others."""

    spec: Spec  # complete
    needs: tuple[str, ...]  # sections of an upload that its rule reads
    folder: RunFolder

    @classmethod
    def of(cls, setting: Setting, folder: RunFolder) -> "Sharer":
        """The run of a setting in its folder."""
        return cls(setting.spec, setting.fusion.needs, folder)

    @property
    def lacking(self) -> frozenset[int]:
        """Clients that have not finished."""
        return frozenset(k for k in range(self.spec.clients) if not self.folder.complete(k, self.spec))

    def uploads(self, number: int, folder: RunFolder) -> list[Path]:
        """The files of a client in a folder that this run's server reads."""
        last = self.spec.epochs
        return [folder.upload(number, None if epoch == last else epoch) for epoch in self.spec.evaluate_at]

    def can_take(self, number: int, source: RunFolder) -> bool:
        """Whether a client has finished in another folder, by this version, with all that this run's rule reads."""
        summary = source.finished(number)
        if summary is None or summary.skipped:
            return summary is not None
        return all(_holds(file, self.needs) for file in self.uploads(number, source))

    def take(self, number: int, source: RunFolder) -> None:
        """Makes the files of a client in another folder this run's own as well, and what was sent with the job."""
        target = self.folder.client(number)
        target.mkdir(parents=True, exist_ok=True)
        (target / _END).unlink(missing_ok=True)
        if source.job.exists() and not self.folder.job.exists():
            link(source.job, self.folder.job)
        beside = [source.client(number) / name for name in ("telemetry.jsonl", "told.json")]
        for file in [*self.uploads(number, source), *beside]:
            if file.exists():  # a client that was skipped has no uploads
                link(file, target / file.name)
        link(source.client(number) / _END, target / _END)
        self.folder.checkpoint(number).unlink(missing_ok=True)


def family_of(spec: Spec) -> str:
    """Equal for complete specs whose clients are the same: the hash of all but the rule, and options of a method's own.

    >>> one, other, third = (Spec(method="fafi", fusion=rule, seed=seed)
    ...                      for rule, seed in (("features", 1), ("logits:weights=uniform", 1), ("features", 2)))
    >>> family_of(one) == family_of(other), family_of(one) == family_of(third)
    (True, False)
    """
    options = {key: value for key, value in spec.options.items() if key not in options_of_rule(spec.method)}
    return of_clients(spec).model_copy(update={"fusion": None, "options": options}).sha256


def of_clients(spec: Spec) -> Spec:
    """The spec of a run's clients: without a rule from a file, which they do not depend on and which may be gone.

    In its place stands one that asks for nothing: the method's own might ask for images that clients have.
    """
    of_rule = file_of(spec.fusion)
    if of_rule is None:
        return spec
    files = {name: sha256 for name, sha256 in spec.files.items() if name != of_rule or name == file_of(spec.method)}
    return spec.model_copy(update={"fusion": "logits", "files": files})


def with_public(spec: Spec, public: str | None) -> Spec:
    """The spec of trained clients, with public images for rules that ask for them. It leaves the clients as they are.

    Args:
        public: another data set; None leaves the spec as it is.
    """
    if public is None or public == spec.public:
        return spec
    share = share_of(public)
    if share is not None and spec.public and share == share_of(spec.public):
        return spec
    if spec.public is not None:
        raise UserError(f"the run has public images, {spec.public}: its rules cannot be given others, {public}")
    if share is not None:
        raise UserError(
            f"public {public}: the clients of this run have trained on these images; name another data set, or run "
            f"again with --public {public}"
        )
    return spec.model_copy(update={"public": public})


def by_family(folders: Iterable[Path]) -> dict[str, list[RunFolder]]:
    """The runs among some folders, by what their clients did. What is no run is left out."""
    found: dict[str, list[RunFolder]] = {}
    for folder in map(RunFolder, folders):
        try:
            found.setdefault(family_of(read_spec(folder.spec)), []).append(folder)
        except UserError:
            continue
    return found


def donor_of(run: Sharer, number: int, donors: Mapping[str, Sequence[RunFolder]]) -> RunFolder | None:
    """Another run of its family from which a run can take a client."""
    others = (donor for donor in donors.get(family_of(run.spec), ()) if donor.path != run.folder.path)
    return next((donor for donor in others if run.can_take(number, donor)), None)


def take_over(runs: Iterable[Sharer], donors: Mapping[str, Sequence[RunFolder]]) -> None:
    """Gives every run the clients that it lacks and that another run of its family has."""
    for run in runs:
        for number in run.lacking:
            if source := donor_of(run, number, donors):
                run.take(number, source)


def takers(runs: Mapping[int, Sharer], lacking: Mapping[int, frozenset[int]]) -> dict[int, list[int]]:
    """Which runs train, and for each the runs whose clients it trains, itself among them.

    A run trains for another if it lacks all that the other lacks, and its snapshots carry all that the other's rule
    reads.

    Args:
        lacking: the clients that are still to be trained, by run.
    """
    family = {number: family_of(run.spec) for number, run in runs.items()}
    sections = {n: frozenset(run.needs if len(run.spec.evaluate_at) > 1 else ()) for n, run in runs.items()}

    def serves(one: int, other: int) -> bool:
        alike = family[one] == family[other]
        return alike and lacking[one] >= lacking[other] and sections[one] >= sections[other]

    # those that can serve most come first: whoever serves a run that serves another serves that one as well
    order = sorted(runs, key=lambda number: (-len(lacking[number]), -len(sections[number])))
    served: dict[int, list[int]] = {}
    for number in runs:
        served.setdefault(next(one for one in order if serves(one, number)), []).append(number)
    return served


def link(file: Path, to: Path) -> None:
    """The same file under a second name. Files of a run are replaced, never changed, so that neither run sees it."""
    if to.exists() and to.samefile(file):
        return
    to.unlink(missing_ok=True)
    try:
        os.link(file, to)
    except OSError:  # another file system, or one that has no links
        write_atomic(to, file.read_bytes())


def _holds(upload: Path, sections: Collection[str]) -> bool:
    """Whether a file is a whole upload, of this version, with some sections."""
    header, held = outline_of(upload)
    return header.get("fedshot") == __version__ and held.issuperset(sections)
