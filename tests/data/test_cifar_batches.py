"""CIFAR batches are fabricated opcode by opcode, as Python 2 wrote the published ones."""

import io
import pickle
import struct
import tarfile

import numpy as np
import pytest

from fedshot.data import load
from fedshot.errors import UserError


def text(content: bytes) -> bytes:
    return b"T" + struct.pack("<i", len(content)) + content


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def pickled_array(array: np.ndarray, code: bytes = b"u1") -> bytes:
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"\x87R"
    kind = b"cnumpy\ndtype\n" + text(code) + number(0) + number(1) + b"\x87R"
    kind += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    shape = b"(" + b"".join(number(size) for size in array.shape) + b"t"
    return empty + b"(" + number(1) + shape + kind + b"\x89" + text(array.tobytes()) + b"tb"


def batch(images: np.ndarray, labels: list[int], key: bytes = b"labels", code: bytes = b"u1") -> bytes:
    listed = b"](" + b"".join(number(label) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + pickled_array(images, code) + text(key) + listed + b"u."


def random_images(seed: int, count: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), np.uint8)


def cifar10_files() -> dict[str, bytes]:
    files = {f"data_batch_{i}": batch(random_images(i), [i, i + 1]) for i in range(1, 6)}
    return {**files, "test_batch": batch(random_images(9), [0, 9])}


def write_folder(place, files, folder="cifar-10-batches-py"):
    (place / folder).mkdir(parents=True)
    for name, content in files.items():
        (place / folder / name).write_bytes(content)


def write_archive(path, files, folder="cifar-10-batches-py"):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def check(data):
    assert (len(data.train), len(data.test), data.shape) == (10, 2, (3, 32, 32))
    assert data.train.labels.tolist() == [1, 2, 2, 3, 3, 4, 4, 5, 5, 6] and data.test.labels.tolist() == [0, 9]
    # a row of a batch is all red values, then all green, then all blue, row by row
    assert data.train.images[3, 1, 2, 5] == random_images(2)[1, 1024 + 2 * 32 + 5]


@pytest.mark.parametrize("below", ["", "cifar10"])
def test_folder_and_archive_read_alike(tmp_path, below):
    write_folder(tmp_path / "a" / below, cifar10_files())
    check(load("cifar10", tmp_path / "a"))
    (tmp_path / "b" / below).mkdir(parents=True)
    write_archive(tmp_path / "b" / below / "cifar-10-python.tar.gz", cifar10_files())
    check(load("cifar10", tmp_path / "b"))


def test_cifar100_takes_the_fine_labels(tmp_path):
    train = batch(random_images(1), [0, 99], b"fine_labels")
    write_folder(
        tmp_path, {"train": train, "test": batch(random_images(2), [5, 6], b"fine_labels")}, "cifar-100-python"
    )
    data = load("cifar100", tmp_path)
    assert data.train.labels.tolist() == [0, 99] and data.class_names[99] == "worm"
    assert len(set(data.class_names)) == 100 and list(data.class_names) == sorted(data.class_names)


def test_pickle_that_asks_for_code_is_refused_and_not_run(tmp_path):
    victim = tmp_path / "victim"
    for name in ("posix\nsystem", "builtins\neval", "os\nsystem", "numpy\nload", "numpy\nndarray.tofile"):
        evil = b"c" + name.encode() + b"\n" + text(f"touch {victim}".encode()) + b"\x85R."
        files = {**cifar10_files(), "data_batch_3": evil}
        root = tmp_path / name.replace("\n", "_")
        write_folder(root, files)
        with pytest.raises(UserError, match="data_batch_3 is not a CIFAR batch"):
            load("cifar10", root)
    assert not victim.exists()


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"not a pickle",
        cifar10_files()["data_batch_1"][:3000],
        pickle.dumps({"labels": [1, 2]}, 2),
        pickle.dumps([1, 2], 2),
        pickle.dumps({"data": 3, "labels": [1, 2]}, 2),
        batch(random_images(1)[:, :3000], [1, 2]),
        batch(random_images(1), [1, 2], code=b"i8"),
        batch(random_images(1), [1, 2], key=b"fine_labels"),
    ],
)
def test_damaged_batches_are_refused_by_name(tmp_path, bad):
    write_folder(tmp_path, {**cifar10_files(), "data_batch_2": bad})
    with pytest.raises(UserError, match=r"data_batch_2 is not a CIFAR batch"):
        load("cifar10", tmp_path)


def test_labels_out_of_range_and_counts_that_differ_are_refused(tmp_path):
    write_folder(tmp_path / "a", {**cifar10_files(), "test_batch": batch(random_images(1), [0, 10])})
    with pytest.raises(UserError, match=r"test_batch .*labels from 0 to 10"):
        load("cifar10", tmp_path / "a")
    write_folder(tmp_path / "b", {**cifar10_files(), "test_batch": batch(random_images(1), [0])})
    with pytest.raises(UserError, match="2 images, 1 labels"):
        load("cifar10", tmp_path / "b")


def test_damaged_archives_are_refused_by_name(tmp_path):
    path = tmp_path / "cifar-10-python.tar.gz"
    write_archive(path, cifar10_files())
    whole = path.read_bytes()
    for bad in (b"", b"no archive", whole[: len(whole) // 2]):
        path.write_bytes(bad)
        with pytest.raises(UserError, match=r"cifar-10-python\.tar\.gz is not the published CIFAR archive"):
            load("cifar10", tmp_path)
    write_archive(path, {"data_batch_1": cifar10_files()["data_batch_1"]})
    with pytest.raises(UserError, match=r"it lacks .*test_batch"):
        load("cifar10", tmp_path)
