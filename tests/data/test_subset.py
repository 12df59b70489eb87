from dataclasses import replace

import numpy as np
import pytest
import torch

from fedshot.data import load
from fedshot.data.subset import draw_subset
from fedshot.data.synthetic import synthetic
from fedshot.errors import UserError


def rows(images):
    return {row.numpy().tobytes() for row in images}


def test_a_part_keeps_the_shares_of_the_classes_and_says_its_size():
    whole, part = load("digits"), load("digits:images=500")
    assert part.name == "digits:images=500"
    assert (len(part.train), len(part.test)) == (500, 100)
    assert (part.mean, part.std, part.augmentation) == (whole.mean, whole.std, whole.augmentation)
    for asked, of in ((part.train, whole.train), (part.test, whole.test)):
        exact = of.labels.bincount(minlength=10) * (len(asked) / len(of))
        assert (asked.labels.bincount(minlength=10) - exact).abs().max() < 1
        assert rows(asked.images) <= rows(of.images)


def test_labels_stay_with_their_images():
    whole, part = load("digits"), load("digits:images=100")
    label_of = {
        image.numpy().tobytes(): int(label) for image, label in zip(whole.train.images, whole.train.labels, strict=True)
    }
    assert [label_of[image.numpy().tobytes()] for image in part.train.images] == part.train.labels.tolist()


def test_a_larger_part_holds_the_smaller_one_and_no_image_twice():
    small, large = load("digits:images=100"), load("digits:images=700")
    assert rows(small.train.images) < rows(large.train.images)
    assert torch.equal(load("digits:images=100", seed=7).train.images, small.train.images)
    numbered = synthetic(images=50, size=4)
    numbered.train.images[:, 0, 0, 0] = torch.arange(50, dtype=torch.uint8)
    assert len(rows(draw_subset(numbered, 37).train.images)) == 37


def test_all_is_the_whole():
    whole, part = load("digits"), load("digits:images=1437")
    assert torch.equal(part.train.images, whole.train.images)
    assert len(part.test) == 1437 // 5


def test_groups_go_with_their_images():
    made = synthetic(images=40, size=4)
    grouped = replace(made, groups=made.train.labels * 3)
    part = draw_subset(grouped, 20)
    assert torch.equal(part.groups, part.train.labels * 3)


def test_a_split_of_emnist_and_a_folder_may_be_cut(tmp_path):
    x, y = np.zeros((60, 28, 28), np.uint8), np.arange(60) % 26
    np.savez(tmp_path / "emnist-letters.npz", x_train=x, y_train=y, x_test=x[:26], y_test=y[:26])
    part = load("emnist:letters:images=30", tmp_path)
    assert (part.name, len(part.train), len(part.test)) == ("emnist:letters:images=30", 30, 6)
    assert load("emnist:letters", tmp_path).name == "emnist:letters"
    with pytest.raises(UserError, match="nowhere is not a folder"):
        load("folder:nowhere:images=5", tmp_path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("digits:images=many", "images takes a whole number, not 'many': write digits:images=1000"),
        ("digits:images=-3", "images takes a whole number, not '-3'"),
        ("digits:images=", "images takes a whole number, not ''"),
        ("digits:images=0", "give a number from 10, one for each class, to 1437, all training images"),
        ("digits:images=1438", "to 1437, all training images"),
        ("digits:image=5", "write 'digits', or digits:images=500"),
        ("cifar10:images=5000", "the files of cifar10 are missing"),
        ("cifr10:images=5000", "did you mean"),
    ],
)
def test_nonsense_is_refused(tmp_path, name, said):
    with pytest.raises(UserError) as error:
        load(name, tmp_path)
    assert said in str(error.value)
