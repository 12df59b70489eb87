"""The partition as a value: fingerprint, summary, files."""

import hashlib
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from fedshot.errors import UserError
from fedshot.partition import Partition, split

LABELS = np.repeat(np.arange(4), 25)


@pytest.fixture
def part() -> Partition:
    return split(LABELS, "dirichlet", clients=3, seed=7, alpha=0.3)


def by_hand(*indices: list[int], labels: np.ndarray = LABELS) -> Partition:
    return Partition.of([np.array(part, dtype=np.int64) for part in indices], labels, "by hand", {})


def test_fingerprint_is_the_hash_of_lengths_and_sorted_indices() -> None:
    raw = struct.pack("<q3q", 3, 1, 5, 9) + struct.pack("<q", 0) + struct.pack("<q1q", 1, 2)
    assert by_hand([9, 1, 5], [], [2]).fingerprint == hashlib.sha256(raw).hexdigest()


def test_fingerprint_ignores_the_order_within_a_client_and_nothing_else() -> None:
    assert by_hand([1, 2, 3], [4]).fingerprint == by_hand([3, 1, 2], [4]).fingerprint
    others = [by_hand([4], [1, 2, 3]), by_hand([1, 2], [3, 4]), by_hand([1, 2, 3], [5]), by_hand([1, 2, 3], [4], [])]
    assert len({other.fingerprint for other in others} | {by_hand([1, 2, 3], [4]).fingerprint}) == 5


def test_numbers_of_a_partition_made_by_hand() -> None:
    part = by_hand([0, 1, 25, 26], [25, 50, 75, 99], [])
    assert part.sizes == (4, 4, 0)
    assert part.class_counts.tolist() == [[2, 2, 0, 0], [0, 1, 1, 2], [0, 0, 0, 0]]
    assert part.entropy_bits == (1.0, 1.5, 0.0)
    assert part.overlap == 1 / 7
    assert part.unassigned == 93
    nobody = by_hand([], [])
    assert (nobody.overlap, nobody.unassigned, nobody.entropy_bits) == (0.0, 100, (0.0, 0.0))


def test_summary_survives_json_exactly(part: Partition) -> None:
    summary = part.summary()
    assert json.loads(json.dumps(summary)) == summary
    assert set(summary) == {
        "recipe", "parameters", "fingerprint", "overlap", "sizes", "entropy_bits", "class_counts", "unassigned"
    }  # fmt: skip
    assert summary["parameters"] == {"clients": 3, "seed": 7, "alpha": 0.3}
    assert summary["entropy_bits"] == [round(bits, 4) for bits in part.entropy_bits]


@pytest.mark.parametrize("name", ["part.json", "part.npz", "new/folder/part.json"])
def test_save_and_load(part: Partition, tmp_path: Path, name: str) -> None:
    part.save(tmp_path / name)
    again = Partition.load(tmp_path / name, LABELS)
    assert again.summary() == part.summary()
    assert all(np.array_equal(a, b) for a, b in zip(again.indices, part.indices, strict=True))
    assert Partition.load(str(tmp_path / name), LABELS.tolist(), classes=9).class_counts.shape == (3, 9)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("lists", [([3, 1], [], [0]), ([], []), ([0, 1], [1, 2], [])])
def test_empty_and_overlapping_clients_survive_a_file(
    tmp_path: Path, suffix: str, lists: tuple[list[int], ...]
) -> None:
    path = tmp_path / f"part{suffix}"
    by_hand(*lists).save(path)
    assert Partition.load(path, LABELS).summary() == by_hand(*lists).summary()


def test_the_number_of_classes_may_be_declared_before_or_after_saving(tmp_path: Path) -> None:
    part = split(LABELS, "iid", clients=2, seed=1, classes=9)
    part.save(tmp_path / "wide.json")
    assert Partition.load(tmp_path / "wide.json", LABELS).class_counts.shape == (2, 4)


def altered(path: Path, **changes: object) -> Path:
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    return path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fingerprint": "0" * 64}, "was altered"),
        ({"fingerprint": None}, "was altered"),
        ({"indices": [[0], [1], [2]]}, "was altered"),
        ({"indices": [[0], [1], [100]]}, "up to index 100"),
        ({"indices": [[0], [1], [-1]]}, "not a partition file"),
        ({"indices": [[0, 0], [1], [2]]}, "not a partition file"),
        ({"indices": [[0.5], [1], [2]]}, "not a partition file"),
        ({"indices": [[2**70], [1], [2]]}, "not a partition file"),
        ({"indices": [["a"], [1], [2]]}, "not a partition file"),
        ({"indices": [[[1]], [1], [2]]}, "not a partition file"),
        ({"indices": []}, "not a partition file"),
        ({"indices": 5}, "not a partition file"),
        ({"indices": None}, "not a partition file"),
        ({"format": "another"}, "not a partition file"),
        ({"recipe": 5}, "not a partition file"),
        ({"parameters": None}, "not a partition file"),
        ({"parameters": 3}, "not a partition file"),
        ({"class_counts": None}, "not a partition file"),
        ({"class_counts": [1, 2]}, "not a partition file"),
        ({"samples": 99}, "divides 99 samples"),
        ({"samples": None}, "divides None samples"),
    ],
)
def test_an_altered_file_is_refused(part: Partition, tmp_path: Path, changes: dict, words: str) -> None:
    part.save(tmp_path / "part.json")
    with pytest.raises(UserError, match=words) as caught:
        Partition.load(altered(tmp_path / "part.json", **changes), LABELS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"3", b'"text"', b"{}", b"{", b"\xff\xfe", b"PK\x03\x04 no archive"])
@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"other{suffix}"
    path.write_bytes(content)
    with pytest.raises(UserError, match="not a partition file"):
        Partition.load(path, LABELS)


def test_a_damaged_or_pickled_npz_is_refused(part: Partition, tmp_path: Path) -> None:
    path = tmp_path / "part.npz"
    part.save(path)
    whole = path.read_bytes()
    for cut in range(0, len(whole), 37):
        path.write_bytes(whole[:cut])
        with pytest.raises(UserError, match="not a partition file"):
            Partition.load(path, LABELS)
    for place in range(0, len(whole), 53):  # a changed byte is found, or lies where it changes nothing
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            assert Partition.load(path, LABELS).fingerprint == part.fingerprint
        except UserError:
            continue
    np.savez(path, header=np.array(["x", {}], dtype=object), indices=np.arange(3))
    with pytest.raises(UserError, match="not a partition file"):
        Partition.load(path, LABELS)
    with (tmp_path / "array.npz").open("wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(UserError, match="not a partition file"):
        Partition.load(tmp_path / "array.npz", LABELS)


def test_another_data_set_is_refused(part: Partition, tmp_path: Path) -> None:
    part.save(tmp_path / "part.npz")
    with pytest.raises(UserError, match="this data set has 50"):
        Partition.load(tmp_path / "part.npz", LABELS[:50])
    with pytest.raises(UserError, match="made for other labels"):
        Partition.load(tmp_path / "part.npz", LABELS[::-1].copy())


def test_missing_files_and_unknown_endings(part: Partition, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no partition file"):
        Partition.load(tmp_path / "none.json", LABELS)
    with pytest.raises(UserError, match=r"\.json or \.npz"):
        part.save(tmp_path / "part.pkl")
    with pytest.raises(UserError, match=r"\.json or \.npz"):
        Partition.load(tmp_path / "part.pkl", LABELS)
    assert list(tmp_path.iterdir()) == []
