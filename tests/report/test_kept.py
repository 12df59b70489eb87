"""Records kept in one file: lossless, in a stable order, added to without touching the rest."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedshot.errors import UserError
from fedshot.kept import Kept, keep, read_collection
from fedshot.record import HeldOut, Record, result_digest
from fedshot.report.gather import gather


@pytest.fixture
def read_back(make_record: Callable[..., Record]) -> Callable[..., Record]:
    """A record as it is read from the file of a run."""

    def make(*arguments: object, **settings: object) -> Record:
        return Record.model_validate_json(make_record(*arguments, **settings).model_dump_json())

    return make


def test_what_is_kept_reads_back_equal_in_an_order_that_does_not_depend_on_when_it_was_added(
    read_back: Callable, tmp_path: Path
) -> None:
    records = [
        read_back("fafi", 2),
        read_back("fafi", 10),
        read_back("etf", 1, options={"weight": 5.0}),
        read_back("etf", 1, data="cifar10"),
        read_back("fafi", 1, alpha=0.5),
    ]
    one, other = tmp_path / "one.jsonl", tmp_path / "deep" / "other.jsonl"
    assert keep(one, records) == Kept(new=5, replaced=0, before=0)
    for record in reversed(records):
        keep(other, [record])
    assert one.read_bytes() == other.read_bytes()
    kept = list(read_collection(one).values())
    assert [(r.spec.data, r.spec.alpha, r.spec.method, r.spec.seed) for r in kept] == [
        ("cifar10", 0.05, "etf", 1),
        ("digits", 0.05, "etf", 1),
        ("digits", 0.05, "fafi", 2),
        ("digits", 0.05, "fafi", 10),
        ("digits", 0.5, "fafi", 1),
    ]
    assert all(record in records for record in kept)


def test_packed_lines_are_the_same_lines(read_back: Callable, tmp_path: Path) -> None:
    plain, packed = tmp_path / "kept.jsonl", tmp_path / "kept.jsonl.gz"
    keep(packed, [read_back("fafi", 1)])
    assert keep(packed, [read_back("etf", 1)]) == Kept(new=1, replaced=0, before=1)
    keep(plain, [read_back("fafi", 1), read_back("etf", 1)])
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert list(read_collection(packed).values()) == list(read_collection(plain).values())
    assert list(gather([packed]).records) == [Path(f"{packed}:1"), Path(f"{packed}:2")]
    again = tmp_path / "again.jsonl.gz"
    keep(again, read_collection(plain).values())
    assert again.read_bytes() == packed.read_bytes(), "what it holds decides the file, not when it was written"
    before = packed.stat().st_mtime_ns
    keep(packed, read_collection(plain).values())
    assert packed.stat().st_mtime_ns == before, "nothing new, nothing written"
    misnamed = tmp_path / "plain.jsonl.gz"
    misnamed.write_bytes(plain.read_bytes())
    assert list(read_collection(misnamed).values()) == list(read_collection(plain).values())
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"kept.jsonl.gz cannot be read as a collection of records"):
        read_collection(packed)


@pytest.mark.parametrize("name", ["kept.jsonl", "kept.jsonl.gz"])
def test_a_file_with_nothing_in_it_is_a_collection_of_nothing(name: str, read_back: Callable, tmp_path: Path) -> None:
    file = tmp_path / name
    file.touch()
    assert read_collection(file) == {}
    assert keep(file, [read_back("fafi", 1)]) == Kept(new=1, replaced=0, before=0)


def test_a_run_of_the_same_spec_is_replaced_and_the_other_lines_stay_as_they_are(
    read_back: Callable, tmp_path: Path
) -> None:
    file = tmp_path / "kept.jsonl"
    keep(file, [read_back("fafi", 1, (0.5, 0.8)), read_back("etf", 1)])
    before = file.read_text().splitlines()
    again = read_back("fafi", 1, (0.5, 0.9))
    assert keep(file, [again, read_back("etf", 1)]) == Kept(new=0, replaced=1, before=1)
    after = file.read_text().splitlines()
    assert after[0] == before[0] and after[1] != before[1]
    assert list(read_collection(file).values())[1].final.accuracy == 0.9
    assert [*tmp_path.iterdir()] == [file], "nothing half-written is left"


def test_a_field_that_the_model_got_later_does_not_change_an_old_record(make_record: Callable, tmp_path: Path) -> None:
    """A record of before says nothing about it, and its hash is over what it said."""
    content = json.loads(make_record().model_dump_json())
    del content["final"]["mean_confidence"]
    content["result_sha256"] = result_digest(content)
    old = Record.model_validate(content)
    file = tmp_path / "kept.jsonl"
    keep(file, [old])
    assert json.loads(file.read_text()) == content
    assert list(read_collection(file).values()) == [old]


def test_a_figure_that_was_typed_is_refused(read_back: Callable, tmp_path: Path) -> None:
    file = tmp_path / "kept.jsonl"
    keep(file, [read_back("etf"), read_back("fafi", 1, (0.5, 0.8))])
    file.write_text(file.read_text().replace('"accuracy":0.8,', '"accuracy":0.9,'))
    with pytest.raises(UserError, match=r"kept.jsonl:1 is damaged: its results do not fit their hash"):
        read_collection(file)
    with pytest.raises(UserError, match=r"kept.jsonl:1 is damaged: its results do not fit their hash"):
        keep(file, [read_back("fafi", 2)])
    edited = read_back("fafi").model_copy(update={"result_sha256": "0" * 64})
    with pytest.raises(UserError, match="fafi, seed 1 does not fit the hash"):
        keep(tmp_path / "other.jsonl", [edited])
    assert not (tmp_path / "other.jsonl").exists()


def test_a_held_out_figure_that_was_typed_is_refused(read_back: Callable, tmp_path: Path) -> None:
    record, file = read_back("fafi"), tmp_path / "kept.jsonl"
    held_out = HeldOut(images=20, accuracy=0.5, balanced_accuracy=0.5, nll=1.0).sealed(record.spec)
    told = record.model_copy(update={"held_out": held_out})
    assert told.sealed().result_sha256 == record.result_sha256, "records of before have none, and the same results"
    keep(file, [told])
    assert list(read_collection(file).values()) == [told]
    file.write_text(file.read_text().replace('"images":20,"accuracy":0.5', '"images":20,"accuracy":0.6'))
    with pytest.raises(UserError, match="its held-out figures do not fit their seal"):
        read_collection(file)


def test_collections_are_gathered_beside_folders_of_runs(
    read_back: Callable, make_record: Callable, tmp_path: Path
) -> None:
    file, folder = tmp_path / "kept.jsonl", tmp_path / "runs" / "etf"
    keep(file, [read_back("fafi", 1), read_back("fafi", 2)])
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(make_record("etf", 1, (0.5, 0.9)).model_dump_json())
    file.write_text(file.read_text() + "{\n")
    found = gather([file, tmp_path / "runs"])
    assert {label: len(records) for label, records in found.tasks[0].runs.items()} == {"etf": 1, "fafi": 2}
    assert [str(place) for place in found.records] == [f"{file}:1", f"{file}:2", str(folder)]
    assert len(found.problems) == 1 and found.problems[0].startswith(f"{file}:3 is damaged")
    assert list(gather([file, tmp_path / "runs"], where=["method=fafi", "seed=2"]).records) == [Path(f"{file}:2")]


@pytest.mark.parametrize(("name", "said"), [("kept.json", "a file NAME.jsonl"), ("twice.jsonl", "repeats the spec of")])
def test_mistakes_are_one_sentence(name: str, said: str, read_back: Callable, tmp_path: Path) -> None:
    file = tmp_path / name
    if name == "twice.jsonl":
        keep(file, [read_back()])
        file.write_text(file.read_text() * 2)
    with pytest.raises(UserError, match=said):
        keep(file, [read_back()])
