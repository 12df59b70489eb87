"""The notes on digits, in seconds: their tables have our figures beside theirs, and their phenomena show."""

import io
import json
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedshot.cli import main
from fedshot.errors import UserError
from fedshot.notes import NOTES, Runs, note_of
from fedshot.notes.note import Repeated, at_same_place
from fedshot.prepare import prepare
from fedshot.record import read_record
from fedshot.store import RunFolder


@dataclass(frozen=True)
class Shown:
    """What the command said about a note, and its runs."""

    said: dict[str, Any]
    runs: Runs


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    """Every note at its smallest scale, by its command."""
    place, found = tmp_path_factory.mktemp("notes"), dict[str, Shown]()
    for name in NOTES:
        printed = io.StringIO()
        with redirect_stdout(printed), pytest.raises(SystemExit) as end:
            main(["reproduce", name, "--scale", "tiny", "--workers", "2", "--out", str(place / name), "--json"])
        assert not end.value.code
        said = json.loads(printed.getvalue())
        folders = {label: RunFolder(Path(folder)) for label, folder in said["runs"].items()}
        records = {label: read_record(folder.record) for label, folder in folders.items()}
        runs = {label: Repeated(record, folders[label]) for label, record in records.items() if record}
        assert list(runs) == list(NOTES[name].runs("tiny"))
        found[name] = Shown(said, runs)
    return found


@pytest.fixture(scope="module")
def repeated(shown: dict[str, Shown]) -> dict[str, Runs]:
    return {name: each.runs for name, each in shown.items()}


@pytest.mark.parametrize("name", NOTES)
def test_the_command_ends_with_tables_phenomena_and_findings(name: str, shown: dict[str, Shown]) -> None:
    said = shown[name].said
    assert (said["note"], said["scale"]) == (name, "tiny") and said["tables"] and said["phenomena"]
    assert set(said["findings"]) == set(said["runs"])
    titles = " ".join(title for titles in said["findings"].values() for title in titles)
    assert {
        "public-feature-bank": "Stage 1 taught nothing",
        "why-v10-fails": "",
        "why-v11-fails": "λ",
        "svhn-explosion": "λ",
        "improving-fafi": "",
        "aurora-logs": "acted as weight decay",
    }[name] in titles


def test_annealing_is_taken_back_by_v11(repeated: dict[str, Runs]) -> None:
    seen = note_of("why-v11-fails").phenomena(repeated["why-v11-fails"])
    assert len(seen) == 4 and all(each.holds for each in seen), seen


def test_lambda_explodes_in_v12_and_is_held_in_v13_and_falls_in_v14(repeated: dict[str, Runs]) -> None:
    seen = note_of("svhn-explosion").phenomena(repeated["svhn-explosion"])
    assert len(seen) == 3 and all(each.holds for each in seen), seen


def test_lambda_of_v10_follows_the_losses(repeated: dict[str, Runs]) -> None:
    follows, *_ = note_of("why-v10-fails").phenomena(repeated["why-v10-fails"])
    assert follows.holds, follows


def test_a_stage_of_contrast_alone_teaches_nothing_and_recurs(repeated: dict[str, Runs]) -> None:
    guesses, recurs, *_ = note_of("public-feature-bank").phenomena(repeated["public-feature-bank"])
    assert guesses.holds and recurs.holds, (guesses, recurs)


def test_lambda_of_v14_falls_alike_with_every_seed(repeated: dict[str, Runs]) -> None:
    *_, falls, alike = note_of("aurora-logs").phenomena(repeated["aurora-logs"])
    assert falls.holds and alike.holds, (falls, alike)


def test_a_client_fills_its_memory_bank_with_false_negatives(repeated: dict[str, Runs]) -> None:
    _, false_negatives, one_exchange, _ = note_of("improving-fafi").phenomena(repeated["improving-fafi"])
    assert false_negatives.holds and one_exchange.holds, (false_negatives, one_exchange)


@pytest.mark.parametrize("name", NOTES)
def test_tables_set_both_figures_side_by_side(name: str, repeated: dict[str, Runs]) -> None:
    for table in NOTES[name].tables(repeated[name]):
        assert table.rows and all(len(row) == len(table.columns) for row in table.rows)
    told = {
        "public-feature-bank": "61.37",
        "why-v10-fails": "59.04%",
        "why-v11-fails": "342.8 / 380.2",
        "svhn-explosion": "4,147,315.4",
        "improving-fafi": "does harm",
        "aurora-logs": "46.73",
    }
    assert any(told[name] in row for table in NOTES[name].tables(repeated[name]) for row in table.rows)


@pytest.mark.parametrize("name", ["why-v10-fails", "why-v11-fails", "svhn-explosion"])
def test_the_full_scale_is_the_note_s_setting(name: str) -> None:
    specs = NOTES[name].runs("full")
    data = {"why-v10-fails": "cifar10", "why-v11-fails": "cifar100", "svhn-explosion": "svhn"}[name]
    assert {(s.data, s.alpha, s.clients, s.encoder, s.clip_scope) for s in specs.values()} == {
        (data, 0.05, 5, "resnet18", "joint")
    }
    told = {0, 9, 14, 15, 19, 29} if name == "svhn-explosion" else set()  # rounds whose accuracy the note tells
    epochs = 100 if name == "why-v11-fails" else 50
    assert all({epochs, *(number + 1 for number in told)} <= set(s.evaluate_at) for s in specs.values())
    assert {s.epochs for s in specs.values()} == {epochs}
    assert all(prepare(s).method for s in NOTES[name].runs("tiny").values())


def test_the_bank_s_full_scale_is_the_note_s_setting() -> None:
    specs = note_of("public-feature-bank").runs("full")
    assert {(s.method, s.alpha) for s in specs.values()} == {
        (method, alpha)
        for method in ("fafi", "two_stage_bank", "two_stage_bank_sound")
        for alpha in (0.5, 0.3, 0.1, 0.05)
    }
    assert {(s.data, s.epochs, s.evaluate_at, s.public) for s in specs.values()} == {
        ("cifar10", 30, (1, 5, 10, 15, 30), "0.1")
    }


@pytest.mark.parametrize("name", NOTES)
def test_habits_change_the_training_and_nothing_else(name: str) -> None:
    """Coupled: one norm. Published: also one draw a batch, momentum anew every round, normalised as that code does."""
    note = NOTES[name]
    sound, coupled, published = (note.runs("small", habits) for habits in ("sound", "coupled", "published"))
    rounds, normalisation = {
        "public-feature-bank": (5, "views"),
        "why-v10-fails": (1, "views"),
        "why-v11-fails": (10, "twice"),
        "svhn-explosion": (1, "twice"),
        "improving-fafi": (1, "views"),
        "aurora-logs": (10, "views"),
    }[name]
    for label, spec in sound.items():
        habits = {"clip_scope": "joint"}
        assert (spec.clip_scope, spec.draws, spec.momentum_epochs, spec.normalisation) == (
            *("group", "sample", None, "alike"),
        )
        assert coupled[label] == spec.model_copy(update=habits)
        by_sample = name == "aurora-logs" and not label.startswith("V14")
        habits |= {"draws": "sample" if by_sample else "batch", "normalisation": normalisation}
        assert published[label] == spec.model_copy(update={**habits, "momentum_epochs": rounds})
    assert note.runs("small") == sound and note.runs("full") == note.runs("full", "coupled") != note.runs(
        "full", "sound"
    )
    assert {spec.normalisation for spec in note.runs("tiny", "published").values()} == {"views"}


def test_the_logs_full_scale_is_their_setting() -> None:
    specs = note_of("aurora-logs").runs("full", "published")
    assert len(specs) == 9 and {s.seed for s in specs.values()} == {42, 114514, 350234}
    assert {(s.data, s.epochs, s.encoder, s.alpha) for s in specs.values()} == {("cifar100", 100, "resnet18", 0.05)}
    weights = {name.split()[0]: (s.method, s.options) for name, s in specs.items()}
    assert weights == {
        "V4": ("fafi", {}),
        "V7": ("etf", {"weight": "20"}),
        "V14": ("aurora", {"start.maximum": "20"}),
    }


def test_the_plan_s_runs_share_their_clients() -> None:
    specs = note_of("improving-fafi").runs("tiny")
    assert len({prepare(s).partition.fingerprint for s in specs.values()}) == 1
    assert {label.partition(":")[0] for label in specs} >= {"fafi", "memory_bank", "two_stage_bank", "distilled"}


def test_rounds_are_compared_at_the_same_place_of_the_run() -> None:
    rows = [{"epoch": e} for e in range(1, 31)]
    assert [at_same_place(rows, r, 50)["epoch"] for r in (0, 24, 49)] == [1, 15, 30]


def test_an_unknown_note_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown note 'why-v11': did you mean 'why-v11-fails'"):
        note_of("why-v11")
