import numpy as np
import pytest
import torch
from PIL import Image

from fedshot.data import load
from fedshot.errors import UserError


def picture(path, level=0, mode="RGB", size=(10, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, level if mode in ("L", "I;16") else (level,) * len(mode)).save(path)


def tree(folder, classes=("cat", "dog"), count=10, **options):
    for c, name in enumerate(classes):
        for i in range(count):
            picture(folder / name / f"{i:02}.png", 20 * i + c, **options)


def test_train_and_test_folders(tmp_path):
    tree(tmp_path / "train", count=3)
    tree(tmp_path / "test", count=2)
    data = load(f"folder:{tmp_path}")
    assert (len(data.train), len(data.test), data.class_names) == (6, 4, ("cat", "dog"))
    assert data.shape == (3, 8, 10) and data.train.images[:, 0, 0, 0].tolist() == [0, 20, 40, 1, 21, 41]
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1] and data.augmentation == "natural"
    assert data.mean == pytest.approx([20.5 / 255] * 3)


def test_one_tree_is_split_by_class_and_seed(tmp_path):
    tree(tmp_path, classes=("cat", "dog", "owl"), mode="L")
    data, again, other = (load("folder", tmp_path, seed) for seed in (1, 1, 2))
    assert torch.bincount(data.test.labels).tolist() == [2, 2, 2] and len(data.train) == 24
    every = torch.cat([data.train.images, data.test.images])[:, 0, 0, 0].tolist()
    assert len(set(every)) == 30
    assert torch.equal(data.test.images, again.test.images)
    assert not torch.equal(data.test.images, other.test.images)
    picture(tmp_path / "ant" / "0.png", mode="L")  # a further class leaves the split of the others alone
    assert torch.equal(load("folder", tmp_path, 1).test.images, data.test.images)


def test_relative_paths_are_allowed(tmp_path, monkeypatch):
    tree(tmp_path / "pets")
    monkeypatch.chdir(tmp_path)
    assert load("folder:pets").name == "folder:pets"


def test_grey_only_if_all_are_grey(tmp_path):
    tree(tmp_path, mode="L")
    assert load("folder", tmp_path).shape == (1, 8, 10)
    picture(tmp_path / "cat" / "coloured.png", 9, mode="RGBA")
    assert load("folder", tmp_path).shape == (3, 8, 10)


def test_size_of_the_majority_else_32(tmp_path):
    tree(tmp_path)
    picture(tmp_path / "dog" / "large.jpg", 255, size=(40, 40))
    data = load("folder", tmp_path)
    assert data.shape == (3, 8, 10)
    assert 255 in torch.cat([data.train.images, data.test.images])[:, 0, 4, 4].tolist()
    for i in range(21):
        picture(tmp_path / "dog" / f"odd{i}.png", size=(11 + i, 9))
    assert load("folder", tmp_path).shape == (3, 32, 32)


def test_constant_images_do_not_divide_by_zero(tmp_path):
    for name in ("a", "b"):
        for i in range(2):
            picture(tmp_path / name / f"{i}.png", 7, mode="L")
    assert load("folder", tmp_path).std == (1 / 255,)


def test_groups_follow_the_training_images(tmp_path):
    tree(tmp_path / "train", count=2)
    tree(tmp_path / "test", count=1)
    rows = ["train/dog/00.png,zoe", "train/cat/01.png,amy", "train/cat/00.png,zoe", "train/dog/01.png,ben"]
    (tmp_path / "groups.csv").write_text("\n".join(["path,group", *rows]))
    assert load("folder", tmp_path).groups.tolist() == [2, 0, 2, 1]
    (tmp_path / "groups.csv").write_text("\n".join(["path,group", *rows[1:]]))
    with pytest.raises(UserError, match=r"no group for 1 training pictures, the first is train/dog/00\.png"):
        load("folder", tmp_path)
    (tmp_path / "groups.csv").write_text("file,owner\n")
    with pytest.raises(UserError, match="path,group"):
        load("folder", tmp_path)
    (tmp_path / "groups.csv").write_bytes(b"path,group\n\xff\xfe,\xff\n")
    with pytest.raises(UserError, match="cannot be read"):
        load("folder", tmp_path)


def test_folders_without_a_data_set_are_refused(tmp_path):
    with pytest.raises(UserError, match="is not a folder"):
        load(f"folder:{tmp_path / 'nowhere'}")
    with pytest.raises(UserError, match="too few pictures"):
        load("folder", tmp_path)
    tree(tmp_path / "train")
    with pytest.raises(UserError, match="only one of train/ and test/"):
        load("folder", tmp_path)
    tree(tmp_path / "test", classes=("cat", "cow"))
    with pytest.raises(UserError, match="without training images: cow"):
        load("folder", tmp_path)


@pytest.mark.parametrize("content", [b"", b"no picture"])
def test_damaged_pictures_are_named(tmp_path, content):
    tree(tmp_path)
    (tmp_path / "cat" / "broken.png").write_bytes(content)
    with pytest.raises(UserError, match=r"broken\.png is not a picture"):
        load("folder", tmp_path)


def test_truncated_and_deep_pictures_are_named(tmp_path):
    tree(tmp_path)
    path = tmp_path / "cat" / "odd.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(UserError, match=r"odd\.png is not a picture"):
        load("folder", tmp_path)
    picture(path, 40_000, mode="I;16")
    with pytest.raises(UserError, match=r"odd\.png has more than 8 bits"):
        load("folder", tmp_path)


def test_other_files_are_left_alone(tmp_path):
    tree(tmp_path)
    (tmp_path / "cat" / "notes.txt").write_text("nothing")
    (tmp_path / "README.md").write_text("nothing")
    (tmp_path / ".cache").mkdir()
    data = load("folder", tmp_path)
    assert len(data.train) + len(data.test) == 20 and data.class_names == ("cat", "dog")
