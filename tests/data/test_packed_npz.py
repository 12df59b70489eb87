import numpy as np
import pytest
import torch

from fedshot.data import load
from fedshot.errors import UserError


def arrays(**other):
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.integers(0, 256, (6, 32, 32, 3), np.uint8),
        "y_train": np.arange(6, dtype=np.uint8),
        "x_test": rng.integers(0, 256, (3, 32, 32, 3), np.uint8),
        "y_test": np.array([9, 0, 1], np.uint8),
        **other,
    }


def test_channels_come_first_and_values_stay(tmp_path):
    content = arrays()
    np.savez(tmp_path / "cifar10.npz", **content)
    data = load("cifar10", tmp_path)
    assert data.train.images.shape == (6, 3, 32, 32) and data.train.images.is_contiguous()
    assert data.train.images[4, 2, 7, 9] == content["x_train"][4, 7, 9, 2]
    assert data.test.labels.tolist() == [9, 0, 1] and data.test.labels.dtype == torch.int64
    assert data.class_names[9] == "truck" and data.mean == (0.4914, 0.4822, 0.4465) and data.groups is None


def test_grey_images_need_no_channel_axis(tmp_path):
    x = np.zeros((2, 28, 28), np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=[0, 9], x_test=x, y_test=[1, 2])
    assert load("mnist", tmp_path).shape == (1, 28, 28)


def test_packed_file_goes_before_published_files(tmp_path):
    np.savez(tmp_path / "cifar10.npz", **arrays())
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"never read")
    assert len(load("cifar10", tmp_path).train) == 6


def test_groups_are_numbered_in_sorted_order(tmp_path):
    np.savez(tmp_path / "cifar10.npz", **arrays(groups_train=np.array(["b", "a", "b", "c", "a", "a"])))
    groups = load("cifar10", tmp_path).groups
    assert groups.tolist() == [1, 0, 1, 2, 0, 0] and groups.dtype == torch.int64


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"x_train": np.zeros((6, 32, 32, 3), np.float32)}, "float32"),
        ({"x_train": np.zeros((5, 32, 32, 3), np.uint8)}, "5 images, 6 labels"),
        ({"x_train": np.zeros((6, 32, 32, 2), np.uint8)}, r"\(6, 32, 32, 2\)"),
        ({"x_train": np.zeros((6, 28, 28, 3), np.uint8)}, r"\(3, 28, 28\)"),
        ({"x_test": np.zeros((3, 32, 32), np.uint8)}, r"\(1, 32, 32\)"),
        ({"x_test": np.zeros((0, 32, 32, 3), np.uint8), "y_test": np.zeros(0, np.uint8)}, "0 images"),
        ({"y_test": np.array([0, 1, 10])}, "labels from 0 to 10"),
        ({"y_test": np.array([0, 1, -1])}, "labels from -1"),
        ({"y_test": np.array([0.0, 1.0, 2.0])}, "float64"),
        ({"y_test": np.zeros((3, 1), np.uint8)}, r"\(3, 1\)"),
        ({"groups_train": np.arange(5)}, "groups_train"),
        ({"y_train": np.array([0, 1, 2, 3, 4, None], object)}, "(?i)object"),
    ],
)
def test_wrong_arrays_are_refused_by_file_name(tmp_path, other, says):
    np.savez(tmp_path / "cifar10.npz", **arrays(**other))
    with pytest.raises(UserError, match=says) as error:
        load("cifar10", tmp_path)
    assert "cifar10.npz" in str(error.value)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "cifar10.npz"
    np.savez(path, **arrays())
    whole = path.read_bytes()
    content = arrays()
    del content["y_test"]
    np.savez(path, **content)
    without = path.read_bytes()
    np.save(tmp_path / "one.npy", np.zeros(3))
    one = (tmp_path / "one.npy").read_bytes()
    damaged = whole[:5000] + bytes(64) + whole[5064:]
    for bad in (whole[: len(whole) // 2], b"", b"not an archive at all", without, one, damaged):
        path.write_bytes(bad)
        with pytest.raises(UserError, match=r"cifar10\.npz is not a packed data set"):
            load("cifar10", tmp_path)
