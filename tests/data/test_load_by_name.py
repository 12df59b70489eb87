import subprocess
import sys

import numpy as np
import pytest

from fedshot.data import DATASETS, SOURCES, load
from fedshot.errors import UserError


def test_names():
    names = {"digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "svhn", "tiny_imagenet", "emnist", "folder"}
    assert set(DATASETS) == names | {"synthetic"} and set(SOURCES) == names - {"digits", "folder"}


@pytest.mark.parametrize("name", ["cifar", "", "digitz", "Folder:x"])
def test_unknown_names(name):
    with pytest.raises(UserError, match=r"unknown data set .* Allowed: cifar10"):
        load(name)


@pytest.mark.parametrize("name", ["digits:x", "mnist:letters"])
def test_variants_that_do_not_exist(name):
    with pytest.raises(UserError, match="for a part"):
        load(name)


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_missing_files_are_listed_with_their_places_and_the_command(tmp_path, name):
    with pytest.raises(UserError) as error:
        load(name, tmp_path)
    source, said = SOURCES[name], str(error.value)
    assert f"`fedshot data download {name}`" in said and str(tmp_path / f"{name}.npz") in said
    assert all(file in said for layout in source.layouts for file in layout.files)
    assert all(str(tmp_path / place) in said for place in source.places)


def test_root_is_the_argument_then_the_environment_then_data(tmp_path, monkeypatch):
    x = np.zeros((1, 28, 28), np.uint8)
    for i, place in enumerate(("argument", "environment", "data")):
        (tmp_path / place).mkdir()
        np.savez(tmp_path / place / "mnist.npz", x_train=x, y_train=[i], x_test=x, y_test=[i])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSHOT_DATA", raising=False)
    assert load("mnist").train.labels.tolist() == [2]
    monkeypatch.setenv("FEDSHOT_DATA", str(tmp_path / "environment"))
    assert load("mnist").train.labels.tolist() == [1]
    assert load("mnist", tmp_path / "argument").train.labels.tolist() == [0]


def test_the_table_of_sources_is_consistent():
    for name, source in SOURCES.items():
        assert source.name == name and len(source.mean) == len(source.std) and len(source.mean) in (0, source.shape[0])
        assert len(set(source.class_names)) == source.classes
        offered = {item.file for item in source.downloads}
        assert any(set(layout.files) == offered for layout in source.layouts), "a download must be readable as it is"
        assert source.folder in source.places
        assert all(item.md5 and len(item.md5) == 32 and item.size for item in source.downloads)
        readable = {file for layout in source.layouts for file in layout.files}
        assert set(source.unpacked_md5) <= readable


def test_importing_the_package_leaves_scipy_and_pillow_alone():
    code = "import sys, fedshot.data, fedshot.data.inventory; sys.exit(any(m in sys.modules for m in ('scipy', 'PIL')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
