"""The examples: every study can be planned and is in the documentation, and variants do what they say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedshot.errors import UserError
from fedshot.experiment import run
from fedshot.prepare import prepare
from fedshot.study.recipe import read_recipe
from fedshot.upload import parse

EXAMPLES = Path(__file__).parent.parent / "examples"
Make = Callable[..., Any]


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_cell_of_a_study_is_a_spec(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)  # methods in files are named from there
    specs = [cell.spec() for cell in read_recipe(str(file)).cells]
    assert specs and len({spec.sha256 for spec in specs}) == len(specs)
    assert file.name in "".join(page.read_text() for page in (EXAMPLES.parent / "docs").rglob("*.md"))


def test_fafi_at_its_own_temperatures_is_fafi(quick: Make, finished: Make, tmp_path: Path) -> None:
    own = {"contrast": 0.07, "prototype": 1.0}
    record = run(quick(str(EXAMPLES / "tempered.py"), own, epochs=1), tmp_path / "run")
    assert record.final == finished(quick("fafi", epochs=1)).record.final


def test_fewer_features_than_classes(quick: Make, tmp_path: Path) -> None:
    method = str(EXAMPLES / "narrow.py")
    with pytest.warns(UserWarning, match="do not fit"):
        record = run(quick(method, {"width": 4, "anchors": "etf"}, epochs=1), tmp_path / "run")
    assert record.final.accuracy > 0
    sent = parse((tmp_path / "run" / "clients" / "0" / "upload.safetensors").read_bytes()).section("weights")
    assert sent["head.prototypes"].shape == (10, 4)
    projection = sent["encoder.projection.weight"]
    drawn = prepare(quick(method, {"width": 4})).initial_model.encoder.projection.weight
    assert not torch.equal(projection, drawn), "it is trained"
    torch.testing.assert_close(drawn @ drawn.T, torch.eye(4))
    for width in (4, 512):
        prototypes = prepare(quick(method, {"width": width})).initial_model.head.prototypes
        assert 15 < prototypes.norm(dim=1).mean() < 30, "about as long as those of 512 features, 22.6"
    with pytest.raises(UserError, match="give a width from 1 to 512"):
        _ = prepare(quick(method, {"width": 513})).initial_model
