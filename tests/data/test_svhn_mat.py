import numpy as np
import pytest
from scipy.io import savemat

from fedshot.data import load
from fedshot.errors import UserError

IMAGES = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 4), np.uint8)
LABELS = np.array([[10], [1], [9], [2]], np.uint8)


def write(place, images=IMAGES, labels=LABELS):
    place.mkdir(exist_ok=True)
    savemat(place / "train_32x32.mat", {"X": images, "y": labels})
    savemat(place / "test_32x32.mat", {"X": IMAGES[..., :2], "y": LABELS[:2]})


@pytest.mark.parametrize("below", ["", "svhn"])
def test_label_ten_is_the_digit_zero(tmp_path, below):
    write(tmp_path / below)
    data = load("svhn", tmp_path)
    assert data.train.labels.tolist() == [0, 1, 9, 2] and data.test.labels.tolist() == [0, 1]
    assert data.train.images.shape == (4, 3, 32, 32) and data.train.images.is_contiguous()
    assert data.train.images[2, 1, 5, 7] == IMAGES[5, 7, 1, 2]
    assert data.augmentation == "natural"


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        (IMAGES[:28], LABELS, r"\(28, 32, 3, 4\)"),
        (IMAGES[..., :3], LABELS, "3 images, 4 labels"),
        (IMAGES.astype(np.float64), LABELS, "float64"),
        (IMAGES, LABELS - 1, "labels 1 to 10"),
        (IMAGES, LABELS + 1, "labels 1 to 10"),
    ],
)
def test_wrong_content_is_refused(tmp_path, images, labels, says):
    write(tmp_path, images, labels)
    with pytest.raises(UserError, match=says) as error:
        load("svhn", tmp_path)
    assert "train_32x32.mat" in str(error.value)


def test_damaged_files_are_refused(tmp_path):
    write(tmp_path)
    path = tmp_path / "test_32x32.mat"
    whole = path.read_bytes()
    savemat(path, {"X": IMAGES})
    without_labels = path.read_bytes()
    for bad in (b"", b"nothing of the kind" * 20, whole[: len(whole) // 2], without_labels):
        path.write_bytes(bad)
        with pytest.raises(UserError, match=r"test_32x32\.mat is not an SVHN file"):
            load("svhn", tmp_path)
