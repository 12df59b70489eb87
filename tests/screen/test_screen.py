"""The screen: attacks on one client of a real run are found and no other client is suspected; honest runs pass."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedshot.errors import UserError
from fedshot.experiment import finish_run, run
from fedshot.fusion import Member
from fedshot.prepare import prepare
from fedshot.screen import screen, screened
from fedshot.screen.attacks import ATTACKS, flipped, poison
from fedshot.screen.measure import Case, table
from fedshot.screen.robust import distances
from fedshot.screen.statistics import Fit, _set_aside, shared_labels
from fedshot.server import Received, receive
from fedshot.setting import Setting
from fedshot.spec import make_spec
from fedshot.store import RunFolder
from fedshot.task import Public

FIVE = 5
ATTACKER = 2


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Setting, RunFolder]:
    """Five clients of unequal classes that have learned something."""
    out = tmp_path_factory.mktemp("screen") / "run"
    record = run(make_spec(method="fafi", clients=FIVE, alpha=0.5, epochs=8, data="digits:images=700"), out)
    return prepare(record.spec), RunFolder(out)


@pytest.fixture(scope="module")
def attacked(honest: tuple[Setting, RunFolder], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunFolder]:
    """The same run with one client that attacks; each attack is made once."""
    setting, folder = honest
    made: dict[str, RunFolder] = {}

    def get(kind: str) -> RunFolder:
        if kind not in made:
            made[kind] = RunFolder(tmp_path_factory.mktemp(kind) / "run")
            shutil.copytree(folder.path, made[kind].path)
            poison(setting, made[kind], ATTACKER, kind)
        return made[kind]

    return get


def members_of(setting: Setting, folder: RunFolder) -> list[Member]:
    return list(receive(setting, folder, ("weights",)).members)


def test_an_honest_run_passes_every_test(honest: tuple[Setting, RunFolder]) -> None:
    setting, folder = honest
    found = screen(members_of(setting, folder), setting)
    assert found.suspects == {} and found.not_possible == {}
    tests = {check.test for each in found.clients for check in each.checks}
    assert tests == {
        *("layer norms", "layer directions", "update direction", "prototypes"),
        *("moments", "own labels", "shared labels"),
    }


@pytest.mark.parametrize("alpha", [0.05, 0.5])
def test_honest_clients_that_hardly_trained_pass(alpha: float, tmp_path: Path) -> None:
    """False alarms: some images to hundreds, one to ten classes, two epochs: heads that move against each other."""
    for seed in (11, 12):
        spec = make_spec(method="fedavg", clients=6, alpha=alpha, epochs=2, seed=seed, data="digits:images=500")
        run(spec, tmp_path / str(seed))
        setting = prepare(spec)
        assert screen(members_of(setting, RunFolder(tmp_path / str(seed))), setting).suspects == {}, seed


@pytest.mark.parametrize("kind", ATTACKS)
def test_the_attacker_is_found_and_nobody_else(
    kind: str, honest: tuple[Setting, RunFolder], attacked: Callable[[str], RunFolder]
) -> None:
    setting = honest[0]
    suspects = screen(members_of(setting, attacked(kind)), setting).suspects
    assert list(suspects) == [ATTACKER]


@pytest.mark.parametrize(
    ("kind", "test", "says"),
    [
        ("scaled", "layer norms", "times as long as usual"),
        ("boosted", "layer norms", "times as long as usual"),
        ("random_weights", "layer directions", "with the shared start"),
        ("sign_flip", "update direction", "with the others'"),
        ("label_flip", "shared labels", "shared classes have the others' names"),
    ],
)
def test_each_attack_is_found_by_the_test_made_for_it(
    kind: str, test: str, says: str, honest: tuple[Setting, RunFolder], attacked: Callable[[str], RunFolder]
) -> None:
    setting = honest[0]
    found = screen(members_of(setting, attacked(kind)), setting).clients[ATTACKER]
    assert says in next(check.words for check in found.suspicions if check.test == test)


def test_weights_alone_show_all_but_flipped_labels(
    honest: tuple[Setting, RunFolder], attacked: Callable[[str], RunFolder]
) -> None:
    setting = honest[0]
    for kind in ATTACKS:
        members = [Member(m.upload.only(("weights",)), m.load) for m in members_of(setting, attacked(kind))]
        found = screen(members, setting)
        assert list(found.suspects) == ([] if kind == "label_flip" else [ATTACKER])
        assert set(found.not_possible) == {"moments", "own labels", "shared labels"}


def test_public_images_with_labels_show_flipped_labels_without_any_statistics(
    honest: tuple[Setting, RunFolder], attacked: Callable[[str], RunFolder]
) -> None:
    setting = honest[0]
    public = Public(setting.data.test, setting.task.classes, same_labels=True)
    task = replace(setting.task, public=public)
    members = [Member(m.upload.only(("weights",)), m.load) for m in members_of(setting, attacked("label_flip"))]
    found = shared_labels(members, task)
    assert not isinstance(found, str)
    assert [client for client, check in found.items() if check.suspicious] == [ATTACKER]
    assert all(check.value >= 0.8 for client, check in found.items() if client != ATTACKER)


def test_a_head_with_exchanged_rows_is_found(honest: tuple[Setting, RunFolder]) -> None:
    """Labels flipped after training, in the head alone."""
    setting, folder = honest
    members = members_of(setting, folder)
    model = members[1].model
    with torch.no_grad():
        model.head.prototypes.copy_(model.head.prototypes.flip(0).clone())  # type: ignore[operator, union-attr]
    swapped = [Member(members[1].upload, lambda: model) if k == 1 else m for k, m in enumerate(members)]
    found = screen(swapped, setting)
    assert list(found.suspects) == [1]
    assert {"layer directions", "own labels"} <= {check.test for check in found.clients[1].suspicions}


def test_withheld_counts_leave_the_tests_of_labels_out(honest: tuple[Setting, RunFolder]) -> None:
    setting, folder = honest
    members = [
        Member(replace(m.upload, header=m.upload.header.model_copy(update={"counts": "withheld"})), m.load)
        for m in members_of(setting, folder)
    ]
    found = screen(members, setting)
    assert set(found.not_possible) == {"own labels", "shared labels"} and not found.suspects


def test_of_two_clients_nobody_can_say_which_is_odd(honest: tuple[Setting, RunFolder]) -> None:
    setting, folder = honest
    found = screen(members_of(setting, folder)[:2], setting)
    assert found.suspects == {} and "of fewer than 3 nobody can say" in found.not_possible["all"]


def test_one_client_of_one_class_is_no_reason(divided: Callable[..., str], tmp_path: Path) -> None:
    file = divided((30, range(10)), (30, range(10)), (25, (3,)), (3, (4,)))
    record = run(make_spec(method="fafi", clients=4, partition_file=file, epochs=4, batch_size=16), tmp_path / "run")
    setting = prepare(record.spec)
    assert screen(members_of(setting, RunFolder(tmp_path / "run")), setting).suspects == {}


# what the server does with it


def test_the_server_reports_or_excludes(
    honest: tuple[Setting, RunFolder], attacked: Callable[[str], RunFolder], tmp_path: Path
) -> None:
    setting = honest[0]
    records = {}
    for mode in ("off", "report", "exclude"):
        folder = RunFolder(tmp_path / mode)
        shutil.copytree(attacked("label_flip").path, folder.path)
        records[mode] = finish_run(setting, folder, screen=mode)  # type: ignore[arg-type]
    off, report, exclude = (records[mode] for mode in ("off", "report", "exclude"))
    assert off.screening is None and report.result_sha256 == off.result_sha256
    assert report.screening is not None and list(report.screening.suspects) == [ATTACKER]
    assert report.clients[ATTACKER].skipped is None
    skipped = exclude.clients[ATTACKER].skipped
    assert skipped is not None and skipped.startswith("excluded by the screen: shared labels: 1 of 6")
    assert exclude.cost.models_kept == FIVE - 1
    assert exclude.screening == report.screening
    assert exclude.final.accuracy > off.final.accuracy


def test_a_screen_that_suspects_everybody_fuses_nobody(
    honest: tuple[Setting, RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, folder = honest
    received = receive(setting, folder, ("weights",))
    odd = [Member(m.upload, m.load) for m in received.members]
    monkeypatch.setattr("fedshot.screen.screen", lambda members, setting: Everybody(members))
    with pytest.raises(UserError, match="suspects every client"):
        screened(Received(tuple(odd), {}), setting, "exclude")


class Everybody:
    """A screening that trusts nobody."""

    def __init__(self, members: Any) -> None:
        self.suspects = {m.upload.header.client: "odd" for m in members}


# the command


def test_the_command(
    honest: tuple[Setting, RunFolder],
    attacked: Callable[[str], RunFolder],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fedshot.cli import main

    monkeypatch.setenv("COLUMNS", "160")

    def call(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(["screen", *words, "--device", "cpu"])
        return int(end.value.code or 0), capsys.readouterr().out

    status, out = call(str(honest[1].path))
    assert status == 0 and "no client is suspicious in 7 tests" in out
    poisoned = str(attacked("scaled").path)
    status, out = call(poisoned)
    assert status == 1 and "layer norms" in out and f"--without {ATTACKER}" in "".join(out.split("\n"))
    status, out = call(poisoned, "--json")
    told = json.loads(out)
    assert status == 1 and list(told["suspects"]) == [str(ATTACKER)] and len(told["clients"]) == FIVE
    assert call(poisoned, "--details")[1].count("update direction") == FIVE


# its parts


def test_whom_a_liar_contradicts_is_not_suspected() -> None:
    """Client 9 lies about everything, client 1 shares most of its classes with it alone: without 9 all agree."""

    def fits_among(numbers: Sequence[int]) -> dict[int, Fit]:
        everybody = {0: Fit(6, 6), 1: Fit(2, 5) if 9 in numbers else Fit(2, 2), 2: Fit(6, 6), 9: Fit(0, 5)}
        return {k: everybody[k] for k in numbers}

    odd, left = _set_aside([0, 1, 2, 9], fits_among)
    assert list(odd) == [9] and left == {0: Fit(6, 6), 1: Fit(2, 2), 2: Fit(6, 6)}


def test_where_nobody_agrees_nobody_is_suspected() -> None:
    fits = {k: Fit(k % 3, 5) for k in range(6)}
    assert _set_aside(list(fits), lambda among: {k: fits[k] for k in among}) == ({}, fits)


def test_distances_are_not_moved_by_a_third_of_the_values() -> None:
    values = torch.tensor([1.0, 1.1, 0.9, 1.05, 1e6, -1e6])
    away, median, limit = distances(values, floor=0.3)
    assert float(median) == pytest.approx(1.025)
    assert [abs(float(x)) > float(limit) for x in away] == [False] * 4 + [True] * 2


def test_flipping_twice_is_nothing(honest: tuple[Setting, RunFolder]) -> None:
    client = honest[0].client(0)
    assert not isinstance(client, str)
    assert flipped(client).class_counts == client.class_counts[::-1]
    twice = flipped(flipped(client))
    assert torch.equal(twice.train.labels, client.train.labels) and twice.class_counts == client.class_counts


def test_an_unknown_attack_is_told(honest: tuple[Setting, RunFolder]) -> None:
    with pytest.raises(UserError, match="unknown attack 'lable_flip': did you mean 'label_flip'"):
        poison(*honest, 0, "lable_flip")


def test_the_table_counts_attackers_and_alarms() -> None:
    found = [
        Case("none", 0.5, "all sections", None, frozenset({3}), 5),
        Case("scaled", 0.5, "all sections", 2, frozenset({2}), 5),
        Case("scaled", 0.5, "all sections", 1, frozenset({4}), 5),
    ]
    lines = table(found).splitlines()
    assert "| none | 0.5 | all sections | – | 1 of 5 |" in lines
    assert "| scaled | 0.5 | all sections | 1 of 2 | 1 of 8 |" in lines
