import hashlib

import pytest
import torch

from fedshot.data import load
from fedshot.data.dataset import content_sha256
from fedshot.data.synthetic import synthetic
from fedshot.errors import UserError


def test_the_images_are_the_same_on_every_machine():
    made = load("synthetic:images=40,size=8")
    found = hashlib.sha256(made.train.images.numpy().tobytes()).hexdigest()
    assert found == "d53f581ceaee3e7a937effdce6e3c2a93a0cff6615ef97fd4a7bf02a163649cf", (
        "a change of these images changes every measurement that was made on them"
    )
    assert content_sha256(made) == content_sha256(synthetic(images=40, size=8))


def test_the_name_says_what_was_asked():
    made = load("synthetic:images=60,size=12,classes=3,channels=1,test=7")
    assert made.name == "synthetic:images=60,size=12,classes=3,channels=1,test=7"
    assert (len(made.train), len(made.test), made.shape, made.classes) == (60, 7, (1, 12, 12), 3)
    assert made.train.labels.bincount().tolist() == [20, 20, 20]
    assert made.train.images.dtype == torch.uint8 and made.train.labels.dtype == torch.int64
    assert made.augmentation == "natural" and len(made.mean) == len(made.std) == 1


def test_parts_of_several_chunks_are_filled():
    made = synthetic(images=5_003, size=4, channels=1)
    assert len(made.train.images) == 5_003
    assert made.train.images[-3:].float().std() > 10


def test_classes_can_be_told_apart_by_their_texture_and_not_by_one_pixel():
    """Nearest class mean of the spectrum, which a shift leaves alone, is right on most test images."""
    made = synthetic(images=400, size=16, classes=4)
    train, test = (torch.fft.fft2(part.images.float()).abs().flatten(1) for part in (made.train, made.test))
    means = torch.stack([train[made.train.labels == label].mean(0) for label in range(4)])
    assert (torch.cdist(test, means).argmin(1) == made.test.labels).float().mean() > 0.9
    pixels = torch.stack([made.train.images[made.train.labels == c].float().mean(0).flatten() for c in range(4)])
    nearest = torch.cdist(made.test.images.flatten(1).float(), pixels).argmin(1)
    assert (nearest == made.test.labels).float().mean() < 0.9


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("images=many", "images takes a whole number"),
        ("images=1", "images takes a whole number of at least 2"),
        ("images=5", "5 images cannot show 10 classes: give at least 10"),
        ("size=2", "size takes a whole number of at least 4 and of at most 256, not '2'"),
        ("channels=2", "channels takes 1 (grey) or 3 (colour), not 2"),
        ("colours=3", "unknown option of data set 'synthetic' 'colours'"),
        ("images", "write key=value, not 'images'"),
    ],
)
def test_nonsense_is_refused(asked, said):
    with pytest.raises(UserError) as error:
        load(f"synthetic:{asked}")
    assert said in str(error.value)
