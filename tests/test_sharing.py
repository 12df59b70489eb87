"""Runs that differ only in their rule train their clients once, and nothing else can tell that they did."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedshot.another_rule import keep_rule
from fedshot.engines.job import Job, Watch
from fedshot.errors import UserError
from fedshot.experiment import Execution, finish_run, run, run_all
from fedshot.fusion import FUSIONS, make_fusion
from fedshot.methods import METHODS
from fedshot.options import options_of
from fedshot.prepare import prepare
from fedshot.record import Record, read_record
from fedshot.server import fuse_again
from fedshot.sharing import Sharer, family_of, of_clients, takers, with_public
from fedshot.spec import Spec
from fedshot.store import RunFolder, read_spec
from fedshot.upload import parse

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]
RESUME = Execution(resume=True)


class Trained(Watch):
    """Writes down who is trained, in which folder."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, int]] = []

    def planned(self, jobs: Sequence[Job]) -> None:
        self.jobs += [(job.folder.name, job.client) for job in jobs]


def hashes(outcomes: Sequence[Record | Exception]) -> list[str]:
    assert all(isinstance(outcome, Record) for outcome in outcomes), outcomes
    return [outcome.result_sha256 for outcome in outcomes if isinstance(outcome, Record)]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_rules_on_shared_clients_give_what_separate_training_gives(
    quick: Quick, divided: Callable[..., str], finished: FinishedRun, tmp_path: Path
) -> None:
    with_one_sample = divided((24, range(6)), (20, range(4, 10)), (1, (1,)))
    specs = [
        quick("fafi", fusion=rule, partition_file=with_one_sample, evaluate_at=(), epochs=1)
        for rule in ("features", "logits:weights=uniform", "moments")
    ]
    watch, names = Trained(), ("one", "two", "three")
    records = run_all([(spec, tmp_path / name) for spec, name in zip(specs, names, strict=True)], watch=watch)
    assert hashes(records) == [finished(spec).record.result_sha256 for spec in specs]
    assert watch.jobs == [("one", 0), ("one", 1), ("one", 2)]
    seconds = []
    for record, name in zip(records, names, strict=True):
        assert isinstance(record, Record) and record == read_record(tmp_path / name / "record.json")
        assert record.clients[2].skipped == "1 sample: BatchNorm needs two"
        seconds.append([client.seconds for client in record.clients])
    assert all(each == seconds[0] for each in seconds)
    files = [sorted(contents(tmp_path / name)) for name in names]
    assert files[0] == files[1] == files[2]
    upload = tmp_path / "two" / "clients" / "0" / "upload.safetensors"
    assert upload.samefile(tmp_path / "one" / "clients" / "0" / "upload.safetensors")


def test_snapshots_are_shared_if_they_carry_what_the_rule_reads(
    quick: Quick, finished: FinishedRun, tmp_path: Path
) -> None:
    specs = {rule: quick("fafi", fusion=rule) for rule in ("features", "moments", "nearest_prototype", "logits")}
    watch = Trained()
    records = run_all([(spec, tmp_path / rule) for rule, spec in specs.items()], watch=watch)
    assert sorted(watch.jobs) == [(rule, k) for rule in ("moments", "nearest_prototype") for k in range(3)]
    assert hashes(records) == [finished(spec).record.result_sha256 for spec in specs.values()]
    assert not list(tmp_path.rglob("at_*")), "snapshots are dropped when they are scored"


def test_what_the_server_sends_is_made_once(quick: Quick, finished: FinishedRun, tmp_path: Path) -> None:
    specs = [quick("split_announced", fusion=rule, evaluate_at=(), epochs=1) for rule in ("shared_base", "logits")]
    records = run_all([(specs[0], tmp_path / "one"), (specs[1], tmp_path / "two")])
    assert hashes(records) == [finished(spec).record.result_sha256 for spec in specs]
    assert (tmp_path / "one/job.safetensors").samefile(tmp_path / "two/job.safetensors")


def test_only_runs_that_differ_in_the_rule_alone_are_one_family(quick: Quick) -> None:
    one = quick("fafi")
    assert family_of(one) == family_of(quick("fafi", fusion="logits"))
    for change in ({"public": "0.1"}, {"validation": 0.1}, {"seed": 2}, {"evaluate_at": (2,)}, {"precision": "bf16"}):
        assert family_of(one) != family_of(quick("fafi", **change)), change


RULED = {"recommended": {"sharpness": 0.5, "ridge": 1.0}, "distilled": {"student.passes": 1, "temperature": 2.0}}


def test_options_of_a_method_s_own_rule_leave_its_clients_alone(quick: Quick, finished: FinishedRun) -> None:
    """Every method that says so is shown to: other options, equal uploads, another result."""
    assert RULED.keys() == {name for name, make in METHODS.items() if make().of_rule}
    for name, options in RULED.items():
        assert set(options) <= set(METHODS[name]().of_rule) == set(options_of(FUSIONS[METHODS[name]().fusion.name]))
        one, other = (finished(quick(name, given, public="0.1", epochs=1, evaluate_at=())) for given in ({}, options))
        assert family_of(one.record.spec) == family_of(other.record.spec)
        assert one.uploads == other.uploads and one.record.result_sha256 != other.record.result_sha256


def test_a_method_in_a_file_may_do_anything_with_its_options(quick: Quick, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from dataclasses import replace\n\nfrom fedshot.method import Method\nfrom fedshot.methods.recommended import "
        "recommended\n\n\ndef own(sharpness: float = 1.5) -> Method:\n    return replace(recommended(), name='own')\n"
    )
    one, other = (prepare(quick(f"{tmp_path}/own.py", {"sharpness": value})).spec for value in (1.0, 2.0))
    assert family_of(one) != family_of(other)


def test_a_method_s_own_rule_with_other_options_is_kept_as_that_run(
    quick: Quick, finished: FinishedRun, tmp_path: Path
) -> None:
    done = finished(quick("recommended", {"share": 0.5}, epochs=1, evaluate_at=()))
    record = keep_rule(done.folder, "routed:sharpness=0.5,ridge=1", tmp_path / "kept")
    trained = finished(quick("recommended", {"sharpness": 0.5, "ridge": 1}, epochs=1, evaluate_at=()))
    assert record.spec == trained.record.spec and record.result_sha256 == trained.record.result_sha256
    assert keep_rule(done.folder, "routed", tmp_path / "same").result_sha256 == done.record.result_sha256
    tried = fuse_again(prepare(done.record.spec), done.folder, ["routed", "routed:share=1.25"])
    assert {row["fusion"]: row["nll"] == done.record.final.nll for row in tried} == {
        "routed": True,  # as the method made it
        "routed:share=1.25": False,
    }
    assert keep_rule(done.folder, "common", tmp_path / "common").spec.options["share"] == 1.25  # unread: the default


def test_the_clients_of_a_run_by_a_rule_in_a_file_have_the_images_that_they_had(quick: Quick) -> None:
    rule = str(Path(__file__).parent.parent / "examples/confident_vote.py")
    for method, given in (("distilled", {}), ("recommended", {"validation": 0})):
        done = prepare(quick(method, fusion=rule, **given))
        again = prepare(of_clients(done.spec))  # the method's own rule wants public images, or some held back
        assert again.partition.fingerprint == done.partition.fingerprint and again.spec.public is None
        assert family_of(again.spec) == family_of(done.spec)


def test_a_study_of_a_rule_s_options_trains_once(quick: Quick, tmp_path: Path) -> None:
    specs = [quick("recommended", {"sharpness": value}, epochs=1, evaluate_at=()) for value in (1.5, 0.5)]
    run_all([(spec, tmp_path / str(number)) for number, spec in enumerate(specs)])
    one, two = (RunFolder(tmp_path / str(number)).upload(0) for number in (0, 1))
    assert one.samefile(two)


def test_who_trains_for_whom(quick: Quick, tmp_path: Path) -> None:
    def runs(*rules: str, **settings: Any) -> dict[int, Sharer]:
        asked = {rule: quick("fafi", fusion=rule, **settings) for rule in rules}
        parts = (Sharer(spec, make_fusion(rule).needs, RunFolder(tmp_path / rule)) for rule, spec in asked.items())
        return dict(enumerate(parts))

    everyone, two = frozenset({0, 1, 2}), frozenset({0, 1})
    rules = ("features", "moments", "typicality")
    assert takers(runs(*rules, evaluate_at=(2,)), dict.fromkeys(range(3), everyone)) == {0: [0, 1, 2]}
    assert takers(runs(*rules), dict.fromkeys(range(3), everyone)) == {1: [0, 1], 2: [2]}
    assert takers(runs(*rules, evaluate_at=(2,)), {0: two, 1: everyone, 2: frozenset({2})}) == {1: [0, 1, 2]}
    assert takers(runs(*rules, evaluate_at=(2,)), {0: two, 1: frozenset({2}), 2: two}) == {0: [0, 2], 1: [1]}


@pytest.fixture
def pair(quick: Quick, tmp_path: Path) -> tuple[Path, Spec]:
    """The folder of a run that has ended, and the spec of another rule."""
    settings: dict[str, Any] = {"evaluate_at": (), "epochs": 1}
    run(quick("fafi", fusion="features", **settings), tmp_path / "first")
    return tmp_path / "first", quick("fafi", fusion="logits", **settings)


def test_a_later_call_takes_the_clients_of_an_earlier_one(
    pair: tuple[Path, Spec], finished: FinishedRun, tmp_path: Path
) -> None:
    first, spec = pair
    before, watch = contents(first), Trained()
    records = run_all([(spec, tmp_path / "second")], RESUME, watch, donors=[tmp_path / "nothing", first])
    assert watch.jobs == [] and hashes(records) == [finished(spec).record.result_sha256]
    run_all([(spec, tmp_path / "second")], watch=watch)  # from the start: it trains all, and writes through no link
    assert len(watch.jobs) == 3 and contents(first) == before


def unfinished(client: Path) -> None:
    (client / "client.json").unlink()


def damaged(client: Path) -> None:
    file = client / "upload.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def of_another_version(client: Path) -> None:
    file = client / "upload.safetensors"
    upload = parse(file.read_bytes())
    header = upload.header.model_copy(update={"fedshot": "0.0.9"})
    file.write_bytes(type(upload)(header, upload.tensors).to_bytes())


def without_a_section(client: Path) -> None:
    file = client / "upload.safetensors"
    file.write_bytes(parse(file.read_bytes()).only(("moments",)).to_bytes())


@pytest.mark.parametrize("spoil", [unfinished, damaged, of_another_version, without_a_section])
def test_a_client_that_will_not_do_is_trained(
    spoil: Callable[[Path], None], pair: tuple[Path, Spec], finished: FinishedRun, tmp_path: Path
) -> None:
    first, spec = pair
    spoil(first / "clients" / "1")
    watch = Trained()
    records = run_all([(spec, tmp_path / "second")], watch=watch, donors=[first])
    assert watch.jobs == [("second", 1)] and hashes(records) == [finished(spec).record.result_sha256]


def test_parts_of_two_interrupted_runs_complete_each_other(quick: Quick, finished: FinishedRun, tmp_path: Path) -> None:
    specs = {rule: quick("fafi", fusion=rule, evaluate_at=(), epochs=1) for rule in ("features", "logits")}
    requests = [(spec, tmp_path / rule) for rule, spec in specs.items()]
    run_all(requests)
    for rule, lost in (("features", 0), ("logits", 2)):
        (tmp_path / rule / "record.json").unlink()
        unfinished(tmp_path / rule / "clients" / str(lost))
    watch = Trained()
    assert hashes(run_all(requests, RESUME, watch)) == [finished(spec).record.result_sha256 for spec in specs.values()]
    assert watch.jobs == []


def test_files_are_copied_where_there_are_no_links(
    pair: tuple[Path, Spec], finished: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    first, spec = pair
    assert hashes(run_all([(spec, tmp_path / "second")], donors=[first])) == [finished(spec).record.result_sha256]
    upload = "clients/0/upload.safetensors"
    assert (first / upload).read_bytes() == (tmp_path / "second" / upload).read_bytes()
    assert not (first / upload).samefile(tmp_path / "second" / upload)


def test_a_client_that_fails_fails_every_run_that_waits_for_it(quick: Quick, tmp_path: Path) -> None:
    fragile = tmp_path / "fragile.py"
    fragile.write_text(FRAGILE)
    rules = ("features", "logits")
    outcomes = run_all([(quick(str(fragile), fusion=r, evaluate_at=(), epochs=1), tmp_path / r) for r in rules])
    assert [str(outcome) for outcome in outcomes] == ["in client 1"] * 2


FRAGILE = '''
from dataclasses import replace
from fedshot.method import Method
from fedshot.methods.fafi import fafi

def fragile() -> Method:
    """FAFI whose client 1 cannot train."""
    def objective(client):
        if client.id == 1:
            raise ZeroDivisionError("in client 1")
        return fafi().objective(client)
    return replace(fafi(), objective=objective)
'''


def test_a_rule_kept_is_the_run_that_it_would_have_been(quick: Quick, finished: FinishedRun, tmp_path: Path) -> None:
    done = finished(quick("fafi"))  # with a snapshot after the first epoch
    before = contents(done.folder.path)
    record = keep_rule(done.folder, "logits:weights=uniform", tmp_path / "kept")
    trained = finished(quick("fafi", fusion="logits:weights=uniform", evaluate_at=()))
    assert record.result_sha256 == trained.record.result_sha256
    assert contents(tmp_path / "kept").keys() == contents(trained.folder.path).keys()
    assert keep_rule(done.folder, "logits:weights=uniform", tmp_path / "kept") == record
    assert run(trained.record.spec, tmp_path / "kept", RESUME) == record
    with pytest.raises(UserError, match=r"another spec \(fusion differ\)"):
        keep_rule(done.folder, "features", tmp_path / "kept")
    assert contents(done.folder.path) == before


def test_a_rule_kept_may_have_public_images_that_the_run_had_not(
    quick: Quick, finished: FinishedRun, tmp_path: Path
) -> None:
    rule, other = "distilled:views=1,student.passes=1", "synthetic:images=40,size=8,channels=1"
    alone = finished(quick("fafi", evaluate_at=()))
    shared = finished(quick("fafi", evaluate_at=(), public=other, fusion=rule))
    record = keep_rule(alone.folder, rule, tmp_path / "kept", public=other)
    assert record.result_sha256 == shared.record.result_sha256 and record.spec == shared.record.spec
    given = quick("fafi", public="0.1")
    assert with_public(given, "0.10") == with_public(given, None) == given
    plain = keep_rule(alone.folder, "logits", tmp_path / "plain", public=other)
    assert plain.spec.public is None, "a rule that reads no public images is the run that it would have been"
    with pytest.raises(UserError, match=r"the clients of this run have trained on these images"):
        keep_rule(alone.folder, rule, tmp_path / "share", public="0.1")
    with pytest.raises(UserError, match=r"its rules cannot be given others, digits"):
        keep_rule(shared.folder, rule, tmp_path / "other", public="digits")


def test_a_rule_kept_misses_who_was_absent_and_screens_as_before(pair: tuple[Path, Spec], tmp_path: Path) -> None:
    first = RunFolder(pair[0])
    setting = prepare(read_spec(first.spec))
    finish_run(setting, first, screen="report")
    assert keep_rule(first, "logits", tmp_path / "screened").screening is not None
    shutil.rmtree(first.client(2))
    finish_run(setting, first, {2: "does not take part"})
    record = keep_rule(first, "logits", tmp_path / "kept")
    assert [client.skipped for client in record.clients] == [None, None, "does not take part"]
    assert record.screening is None


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("typicality", "needs held-out images of every client: add --validation 0.1"),
        ("distilled", "needs public images, and the run has set none aside: name another data set"),
        ("routed", "which clients of fafi do not send"),
        ("shared_base:shared=9", "9 stages cannot be shared"),
    ],
)
def test_a_rule_that_cannot_be_leaves_nothing(
    rule: str, reason: str, quick: Quick, finished: FinishedRun, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=reason):
        keep_rule(finished(quick("fafi")).folder, rule, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_a_fusion_that_fails_leaves_nothing(
    quick: Quick, finished: FinishedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        assert (tmp_path / "kept" / "clients").exists()
        raise UserError("it cannot be")

    monkeypatch.setattr("fedshot.another_rule.finish_run", fail)
    with pytest.raises(UserError, match="it cannot be"):
        keep_rule(finished(quick("fafi")).folder, "logits", tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_sections_that_nobody_or_somebody_has_not_sent(pair: tuple[Path, Spec], tmp_path: Path) -> None:
    first, _ = pair
    for number in range(3):
        file = first / "clients" / str(number) / "upload.safetensors"
        file.write_bytes(parse(file.read_bytes()).only(("weights", "moments") if number else ("weights",)).to_bytes())
    with pytest.raises(UserError, match="the uploads carry no class_means"):
        keep_rule(RunFolder(first), "nearest_prototype", tmp_path / "kept")
    record = keep_rule(RunFolder(first), "moments", tmp_path / "kept")
    assert [client.skipped for client in record.clients][1:] == [None, None]
    assert record.clients[0].skipped == "upload refused: section moments is missing"
    (first / "record.json").unlink()
    with pytest.raises(UserError, match="has no record: end that run first"):
        keep_rule(RunFolder(first), "logits", tmp_path / "other")
