import gzip
import io
import struct
import zipfile

import numpy as np
import pytest

from fedshot.data import load
from fedshot.errors import UserError

RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.integers(0, 256, (4, 28, 28), np.uint8), np.array([3, 0, 9, 1], np.uint8)
NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def idx(array: np.ndarray) -> bytes:
    return struct.pack(">I", 0x800 + array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(place, suffix="", **other):
    place.mkdir(parents=True, exist_ok=True)
    contents = dict(zip(NAMES, (IMAGES, LABELS, IMAGES[:2], LABELS[:2]), strict=True))
    for name, array in contents.items():
        content = other.get(name.replace("-", "_"), idx(array))
        (place / f"{name}{suffix}").write_bytes(gzip.compress(content) if suffix else content)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(("name", "below"), [("mnist", "mnist"), ("fashion_mnist", "FashionMNIST/raw")])
def test_mnist_and_fashion_mnist(tmp_path, name, below, suffix):
    write_mnist(tmp_path / below, suffix)
    data = load(name, tmp_path)
    assert (data.train.images[:, 0].numpy() == IMAGES).all() and data.train.labels.tolist() == [3, 0, 9, 1]
    assert len(data.test) == 2
    assert data.augmentation == {"mnist": "characters", "fashion_mnist": "natural"}[name]


def test_files_of_mnist_are_never_taken_for_fashion_mnist(tmp_path):
    write_mnist(tmp_path)
    write_mnist(tmp_path / "mnist")
    with pytest.raises(UserError, match="fashion_mnist are missing"):
        load("fashion_mnist", tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "nothing"),
        (b"\x00\x00\x0d\x03" + bytes(12), "00 00 0d 03"),
        (idx(IMAGES)[:9], "inside its header"),
        (idx(IMAGES)[:-1], "3136 values, it holds 3135"),
        (idx(IMAGES) + b"x", "it holds 3137"),
        (idx(LABELS), "shape"),
        (idx(IMAGES[:3]), "3 images, 4 labels"),
        (idx(IMAGES[:, :8, :8]), r"\(1, 8, 8\)"),
    ],
)
def test_wrong_image_files_are_refused(tmp_path, content, says):
    write_mnist(tmp_path / "mnist", train_images_idx3_ubyte=content)
    with pytest.raises(UserError, match=says) as error:
        load("mnist", tmp_path)
    assert str(tmp_path / "mnist") in str(error.value)


def test_wrong_labels_and_damaged_gz_are_refused(tmp_path):
    write_mnist(tmp_path / "mnist", train_labels_idx1_ubyte=idx(np.array([0, 1, 2, 10], np.uint8)))
    with pytest.raises(UserError, match="labels from 0 to 10"):
        load("mnist", tmp_path)
    write_mnist(tmp_path / "mnist", ".gz")
    path = tmp_path / "mnist/t10k-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for bad in (whole[:-200], b"plain", b""):
        path.write_bytes(bad)
        with pytest.raises(UserError, match=r"t10k-images-idx3-ubyte\.gz is not an IDX file"):
            load("mnist", tmp_path)


def emnist(split: str, labels: np.ndarray) -> dict[str, bytes]:
    return {
        f"emnist-{split}-{part}-{kind}": idx(array)
        for part in ("train", "test")
        for kind, array in (("images-idx3-ubyte", IMAGES), ("labels-idx1-ubyte", labels))
    }


def write_zip(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"gzip/{name}.gz", gzip.compress(content))


def test_emnist_images_are_turned_upright_and_statistics_computed(tmp_path):
    (tmp_path / "emnist").mkdir()
    write_zip(tmp_path / "emnist/gzip.zip", emnist("byclass", np.array([0, 61, 10, 36], np.uint8)))
    data = load("emnist", tmp_path)
    assert (data.train.images[:, 0].numpy() == IMAGES.transpose(0, 2, 1)).all() and data.train.images.is_contiguous()
    assert data.classes == 62 and [data.class_names[i] for i in (0, 10, 36, 61)] == ["0", "A", "a", "z"]
    assert abs(data.mean[0] - IMAGES.mean() / 255) < 1e-9 and abs(data.std[0] - IMAGES.std() / 255) < 1e-9


@pytest.mark.parametrize(("split", "classes"), [("balanced", 47), ("bymerge", 47), ("digits", 10), ("mnist", 10)])
def test_other_splits_of_emnist(tmp_path, split, classes):
    for name, content in emnist(split, np.array([0, 1, 2, classes - 1], np.uint8)).items():
        (tmp_path / name).write_bytes(content)
    data = load(f"emnist:{split}", tmp_path)
    assert data.classes == classes and data.name == f"emnist:{split}"


def test_letters_count_from_one_in_the_files(tmp_path):
    for name, content in emnist("letters", np.array([1, 2, 25, 26], np.uint8)).items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    data = load("emnist:letters", tmp_path)
    assert data.train.labels.tolist() == [0, 1, 24, 25] and data.class_names[25] == "z"


def test_damaged_emnist_archive_is_refused(tmp_path):
    path = tmp_path / "gzip.zip"
    write_zip(path, emnist("balanced", LABELS))
    with pytest.raises(UserError, match=r"gzip\.zip .*it lacks gzip/emnist-byclass"):
        load("emnist", tmp_path)
    path.write_bytes(io.BytesIO(path.read_bytes()).read(500))
    with pytest.raises(UserError, match=r"gzip\.zip is not the published EMNIST archive"):
        load("emnist", tmp_path)
    with pytest.raises(UserError, match="did you mean 'balanced'"):
        load("emnist:balance", tmp_path)
