import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from fedshot.data import load
from fedshot.errors import UserError


def jpeg(level: int, mode: str = "RGB", size: int = 64) -> bytes:
    out = io.BytesIO()
    Image.new(mode, (size, size), level if mode == "L" else (level, level, level)).save(out, "JPEG")
    return out.getvalue()


def tiny(**other: bytes) -> dict[str, bytes]:
    """Two classes; the annotations contradict the alphabetical order of the validation files."""
    files = {
        "train/n02/images/n02_0.JPEG": jpeg(200),
        "train/n02/images/n02_1.JPEG": jpeg(210, "L"),
        "train/n01/images/n01_0.JPEG": jpeg(100),
        "train/n01/n01_boxes.txt": b"n01_0.JPEG\t0\t0\t63\t63\n",
        "val/images/val_0.JPEG": jpeg(20),
        "val/images/val_1.JPEG": jpeg(10),
        "val/images/val_2.JPEG": jpeg(30),
        "val/val_annotations.txt": b"val_0.JPEG\tn02\t0\t0\t9\t9\nval_1.JPEG\tn01\t0\t0\t9\t9\nval_2.JPEG\tn02\n",
    }
    return {f"tiny-imagenet-200/{name}": content for name, content in {**files, **other}.items()}


def write(place, files, packed):
    place.mkdir(parents=True, exist_ok=True)
    if packed:
        with zipfile.ZipFile(place / "tiny-imagenet-200.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("below", ["", "tiny_imagenet"])
def test_validation_labels_come_from_the_annotations(tmp_path, packed, below):
    write(tmp_path / below, tiny(), packed)
    data = load("tiny_imagenet", tmp_path)
    assert data.class_names == ("n01", "n02") and data.shape == (3, 64, 64)
    assert data.train.labels.tolist() == [0, 1, 1] and data.test.labels.tolist() == [1, 0, 1]
    assert np.allclose(data.train.images.float().mean((1, 2, 3)), [100, 200, 210], atol=2)
    assert np.allclose(data.test.images.float().mean((1, 2, 3)), [20, 10, 30], atol=2)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("val/val_annotations.txt", b"val_0.JPEG\tn77\t0\t0\t9\t9\n", "n77"),
        ("val/val_annotations.txt", b"val_9.JPEG\tn01\t0\t0\t9\t9\n", r"val_9\.JPEG is missing"),
        ("val/val_annotations.txt", b"val_0.JPEG n01\n", "without file name and class"),
        ("val/val_annotations.txt", b"", "without file name and class"),
        ("val/val_annotations.txt", b"\xff\xfe", "not text"),
        ("val/images/val_1.JPEG", b"no picture", r"val_1\.JPEG is not a picture"),
        ("val/images/val_1.JPEG", jpeg(3)[:300], r"val_1\.JPEG is not a picture"),
        ("train/n01/images/n01_0.JPEG", jpeg(3, size=32), "32x32, not 64x64"),
    ],
)
def test_wrong_content_is_refused(tmp_path, packed, name, content, says):
    write(tmp_path, tiny(**{name: content}), packed)
    with pytest.raises(UserError, match=says) as error:
        load("tiny_imagenet", tmp_path)
    assert "tiny-imagenet-200" in str(error.value)


def test_damaged_or_empty_archive_is_refused(tmp_path):
    path = tmp_path / "tiny-imagenet-200.zip"
    write(tmp_path, tiny(), packed=True)
    whole = path.read_bytes()
    for bad in (whole[: len(whole) // 2], b""):
        path.write_bytes(bad)
        with pytest.raises(UserError, match=r"tiny-imagenet-200\.zip is not the published Tiny-ImageNet"):
            load("tiny_imagenet", tmp_path)
    write(tmp_path, {"tiny-imagenet-200/val/val_annotations.txt": b"val_0.JPEG\tn01\n"}, packed=True)
    with pytest.raises(UserError, match="no training images"):
        load("tiny_imagenet", tmp_path)
