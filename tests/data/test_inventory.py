import hashlib
from dataclasses import replace

import numpy as np
import pytest

from fedshot.data import SOURCES
from fedshot.data.inventory import inventory, verify
from fedshot.errors import UserError

X, Y = np.arange(28 * 28, dtype=np.uint8).reshape(1, 28, 28), np.array([3], np.uint8)


def entries(root):
    return {entry.name: entry for entry in inventory(root)}


def test_nothing_but_the_digits_in_an_empty_root(tmp_path):
    found = entries(tmp_path)
    assert list(found) == ["digits", *SOURCES, "folder:PATH", "synthetic"]
    assert found["digits"].state == "embedded" and found["digits"].size == "1,437 + 360 of 1x8x8"
    assert {found[name].state for name in SOURCES} == {"missing"}
    assert found["folder:PATH"].state == "your own"
    svhn = found["svhn"]
    assert svhn.where == str(tmp_path / "svhn") and svhn.files == ("train_32x32.mat", "test_32x32.mat")
    assert svhn.classes == 10 and svhn.note == "download of 246 MB; for non-commercial use"


def test_present_data_sets_are_seen_where_they_lie(tmp_path):
    np.savez(tmp_path / "mnist.npz", x_train=X, y_train=Y, x_test=X, y_test=Y)
    (tmp_path / "svhn").mkdir()
    for file in ("train_32x32.mat", "test_32x32.mat"):
        (tmp_path / "svhn" / file).write_bytes(b"")
    (tmp_path / "train_32x32.mat").write_bytes(b"")  # half a data set does not count
    found = entries(tmp_path)
    assert (found["mnist"].state, found["mnist"].where, found["mnist"].files) == (
        "present",
        str(tmp_path),
        ("mnist.npz",),
    )
    assert (found["svhn"].state, found["svhn"].where) == ("present", str(tmp_path / "svhn"))
    assert found["fashion_mnist"].state == "missing"


def test_a_missing_checksum_is_said(tmp_path, monkeypatch):
    source = SOURCES["svhn"]
    monkeypatch.setitem(SOURCES, "svhn", replace(source, downloads=(replace(source.downloads[0], md5=None),)))
    assert "no official checksum: train_32x32.mat" in entries(tmp_path)["svhn"].note


def test_embedded_digits_are_as_shipped():
    assert [checked.state for checked in verify("digits")] == ["ok"]


def test_packed_arrays_are_compared_however_they_are_packed(tmp_path, monkeypatch):
    expected = hashlib.sha256(X.tobytes() + Y.tobytes() + X.tobytes() + Y.tobytes()).hexdigest()
    monkeypatch.setitem(SOURCES, "mnist", replace(SOURCES["mnist"], arrays_sha256=expected))
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "mnist.npz", y_test=Y, x_test=X, y_train=Y, x_train=X)
        assert [(c.file, c.state) for c in verify("mnist", tmp_path)] == [(str(tmp_path / "mnist.npz"), "ok")]
    np.savez(tmp_path / "mnist.npz", x_train=X, y_train=Y, x_test=X, y_test=Y + 1)
    (checked,) = verify("mnist", tmp_path)
    assert checked.state == "differs" and checked.expected == expected != checked.found
    np.savez(tmp_path / "svhn.npz", x_train=X, y_train=Y, x_test=X, y_test=Y)
    assert [c.state for c in verify("svhn", tmp_path)] == ["no official checksum"]


def test_published_files_are_compared_one_by_one(tmp_path, monkeypatch):
    first, second = SOURCES["svhn"].downloads
    right = replace(first, md5=hashlib.md5(b"right").hexdigest())
    monkeypatch.setitem(SOURCES, "svhn", replace(SOURCES["svhn"], downloads=(right, second)))
    (tmp_path / first.file).write_bytes(b"right")
    (tmp_path / second.file).write_bytes(b"wrong")
    assert [checked.state for checked in verify("svhn", tmp_path)] == ["ok", "differs"]


def test_unpacked_batches_have_checksums_and_an_unpacked_tiny_imagenet_has_none(tmp_path):
    for file in SOURCES["cifar100"].layouts[0].files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(b"")
    assert [checked.state for checked in verify("cifar100", tmp_path)] == ["differs", "differs"]
    (tmp_path / "tiny-imagenet-200/train").mkdir(parents=True)
    (tmp_path / "tiny-imagenet-200/val").mkdir()
    (tmp_path / "tiny-imagenet-200/val/val_annotations.txt").write_text("")
    assert {checked.state for checked in verify("tiny_imagenet", tmp_path)} == {"no official checksum"}


def test_nothing_to_verify(tmp_path):
    with pytest.raises(UserError, match="fedshot data download cifar10"):
        verify("cifar10", tmp_path)
    with pytest.raises(UserError, match="no checksum"):
        verify("folder:x", tmp_path)
    with pytest.raises(UserError, match="unknown published data set"):
        verify("cifar", tmp_path)
