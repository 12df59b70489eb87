"""examples/letters.py: type families as clients' hands."""

import importlib.util
import shutil
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import matplotlib
import pytest

from fedshot.data.folder import load_folder
from fedshot.partition import natural

ROOT = Path(__file__).parent.parent
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
CUTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSansMono", "STIXGeneral")


@pytest.fixture
def letters() -> ModuleType:
    spec = importlib.util.spec_from_file_location("letters", ROOT / "examples" / "letters.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def fonts(letters: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six families of each of two kinds, where npm would have put them; the fonts are those of matplotlib."""
    listed = [letters.Family(kind, f"{kind}-{n}", "1.0.0") for kind in ("plain", "round") for n in range(len(CUTS))]
    for family, cut in zip(listed, CUTS * 2, strict=True):
        file = tmp_path / f"node_modules/@fontsource/{family.package}/files/{family.package}-latin-400-normal.woff"
        file.parent.mkdir(parents=True)
        shutil.copy(FONTS / f"{cut}.ttf", file)
    monkeypatch.setattr(letters, "families", lambda: listed)
    return tmp_path


def test_the_list_has_as_many_families_of_each_kind(letters: ModuleType) -> None:
    listed = letters.families()
    assert set(Counter(family.kind for family in listed).values()) == {40}
    assert len({family.package for family in listed}) == len(listed) == 200


@pytest.mark.parametrize(("owner", "groups"), [("kind", 2), ("family", 10)])
def test_a_folder_with_owners_and_unseen_hands_for_testing(
    letters: ModuleType, fonts: Path, tmp_path: Path, owner: str, groups: int
) -> None:
    letters.draw(fonts, tmp_path / "drawn", owner)
    data = load_folder(tmp_path / "drawn", "letters", seed=1)
    assert (len(data.class_names), tuple(data.train.images.shape[1:])) == (62, (1, 28, 28))
    assert (len(data.train.images), len(data.test.images)) == (62 * 10, 62 * 2), (
        "every fifth family of a kind is unseen"
    )
    assert data.groups is not None
    parts = natural.assign(data.train.labels.numpy(), groups, 1, data.groups)
    assert {len(part) for part in parts} == {620 // groups}
    assert all(data.train.images.flatten(1).amax(1) > 200), "every character has ink"


def test_capitals_are_larger_on_the_same_line(letters: ModuleType, fonts: Path) -> None:
    font = letters.families()[0].font(fonts)
    boxes = [letters.picture(character, font).getbbox() for character in "Xx"]
    (_, capital_top, _, capital_bottom), (_, small_top, _, small_bottom) = boxes
    assert capital_bottom == small_bottom == letters.BASELINE
    assert capital_top < small_top - 2


def test_the_command_names_what_to_install_and_what_is_missing(
    letters: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["letters.py", "packages"])
    letters.main()
    printed = capsys.readouterr().out.split()
    assert len(printed) == 200 and all(name.startswith("@fontsource/") and name.count("@") == 2 for name in printed)
    monkeypatch.setattr(sys, "argv", ["letters.py", "draw", str(tmp_path), "--out", str(tmp_path / "drawn")])
    with pytest.raises(SystemExit, match="install the packages first"):
        letters.main()
