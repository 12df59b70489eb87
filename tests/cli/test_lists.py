"""What there is: methods, fusion rules, data sets, partitions."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import fedshot.holding
from fedshot.data.dataset import Dataset, Labelled
from fedshot.fusion import FUSIONS
from fedshot.methods import ALIASES, METHODS


def test_methods_as_json(call: Callable) -> None:
    rows = call("methods", "--json").json
    assert [row["name"] for row in rows] == list(METHODS)
    assert {alias: row["name"] for row in rows for alias in row["aliases"]} == ALIASES
    assert all(row["summary"] and row["fusion"] in FUSIONS for row in rows)
    assert [row["name"] for row in rows if row["phases"] != 1] == ["split_announced"]
    options = {option["key"]: option for row in rows if row["name"] == "etf" for option in row["options"]}
    told = {"allowed": "a number of at least 0", "default": 5.0, "required": False}
    assert options["weight"] == {"key": "weight", **told}


def test_methods_as_a_table_that_hides_nothing(call: Callable) -> None:
    out = call("methods").out
    assert all(name in out for name in [*METHODS, *ALIASES])
    assert all(len(line) <= 100 for line in out.splitlines())
    # brackets are part of a formula, not of the table's markup
    assert "[SupCon" in out and "lambda [scale" in out


@pytest.mark.parametrize("name", ["V14", "v14", "aurora"])
def test_one_method_with_its_options(name: str, call: Callable) -> None:
    out = call("methods", name).out
    assert out.startswith("aurora\n")
    assert "hinge.cap" in out and "50.0" in out and "etf | random | zero" in out
    assert f"fedshot run {name} --set KEY=VALUE" in out
    assert call("methods", name, "--json").json[0]["name"] == "aurora"


def test_a_rule_of_ones_own_that_must_be_told_something(call: Callable, tmp_path: Path) -> None:
    text = (Path(__file__).parent.parent.parent / "examples/confident_vote.py").read_text()
    head = next(line for line in text.splitlines() if line.startswith("def ") and "-> Fusion" in line)
    (tmp_path / "own.py").write_text(text.replace(head, "def demanding(strength: float) -> Fusion:"))
    answer = call("fusions", str(tmp_path / "own.py"))
    assert (answer.status, answer.err) == (0, "") and "required" in answer.out and "strength" in answer.out
    assert call("fusions", str(tmp_path / "own.py"), "--json").json[0]["needs"] is None


def test_a_method_without_options_and_one_of_ones_own(call: Callable, variant: Path, tmp_path: Path) -> None:
    assert "no options" in call("methods", "fafi").out
    assert "strength" in call("methods", str(variant)).out
    bare = tmp_path / "bare.py"
    text = variant.read_text().replace("strength: float = 1.0", "strength: float")
    bare.write_text(text.replace('    """FAFI + strength times its cross-entropy once more."""\n', ""))
    answer = call("methods", str(bare))
    assert answer.status == 0
    assert "required" in answer.out
    assert call("methods", str(bare), "--json").json[0]["options"][0]["required"] is True


def test_fusions_as_json_and_as_a_table(call: Callable) -> None:
    rows = {row["name"]: row for row in call("fusions", "--json").json}
    assert list(rows) == list(FUSIONS)
    assert [name for name, row in rows.items() if not row["inductive"]] == ["batch_moments"]
    assert rows["typicality"]["needs"] == ["weights", "familiarity"]
    assert all(name in call("fusions").out for name in FUSIONS)
    one = call("fusions", "features").out
    assert "samples | sqrt_samples | uniform" in one
    assert "--fusion features:KEY=VALUE" in one
    assert "transductive" in call("fusions", "batch_moments").out


@pytest.mark.parametrize("command", ["datasets", "data list"])
def test_datasets(command: str, call: Callable, tmp_path: Path) -> None:
    rows = {row["name"]: row for row in call(*command.split(), "--json").json}
    assert rows["digits"]["state"] == "embedded"
    assert {"mnist", "fashion_mnist", "cifar10", "cifar100", "svhn", "tiny_imagenet", "emnist"} <= rows.keys()
    assert rows["cifar10"]["state"] == "missing"
    out = call(*command.split(), "--data-root", str(tmp_path)).out
    assert "cifar100" in out and "embedded" in out


def test_data_alone_lists(call: Callable) -> None:
    assert call("data").out == call("datasets").out != ""


def test_the_embedded_data_set_is_verified(call: Callable) -> None:
    answer = call("data", "verify", "digits")
    assert (answer.status, answer.out) == (0, "digits: digits.npz: ok\n")


def test_partition_as_json_has_the_keys_of_a_record(call: Callable) -> None:
    found = call("partition", "--clients", "3", "--alpha", "0.5", "--seed", "4", "--json").json
    assert {"recipe", "fingerprint", "overlap", "sizes", "entropy_bits"} <= found.keys()
    assert (found["recipe"], found["overlap"], sum(found["sizes"])) == ("dirichlet", 0.0, 1437)
    assert len(found["sizes"]) == len(found["entropy_bits"]) == 3
    assert call("partition", "--clients", "3", "--alpha", "0.5", "--seed", "5", "--json").json != found


def test_partition_gives_the_entropies_of_the_notes(call: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = torch.from_numpy(np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000)))
    images = torch.zeros(50_000, 1, 1, 1, dtype=torch.uint8)
    train = Labelled(images, labels)
    names = tuple("0123456789")
    fake = Dataset("cifar10", train, train, names, (0.5,), (0.5,), "natural")
    monkeypatch.setattr(fedshot.holding, "load_data", lambda *_: fake)
    found = call("partition", "--data", "cifar10", "-k", "5", "--alpha", "0.05", "--seed", "1", "--json").json
    assert found["sizes"] == [15274, 13309, 4729, 9738, 6950]
    assert [f"{bits:.4f}" for bits in found["entropy_bits"]] == ["1.9079", "1.7997", "0.6091", "1.1689", "1.7245"]


def test_partition_is_drawn_saved_and_used_again(call: Callable, tmp_path: Path) -> None:
    answer = call("partition", "-k", "4", "--save", "deep/p.json", "--image", "pictures/p.svg")
    assert answer.status == 0
    assert "fingerprint" in answer.out
    assert Path("pictures/p.svg").read_text().lstrip().startswith("<?xml")
    saved = json.loads(Path("deep/p.json").read_text())
    again = call("partition", "-k", "4", "--partition-file", "deep/p.json", "--json").json
    assert again["fingerprint"] == saved["fingerprint"]
    wrong = call("partition", "-k", "5", "--partition-file", "deep/p.json")
    assert (wrong.status, wrong.err.count("\n")) == (2, 1)
    assert "over 4 clients, not 5" in wrong.err
