"""Every mistake gets one clear line on standard error and exit status 2; nothing is written, nothing is printed."""

from collections.abc import Callable
from pathlib import Path

import pytest

MISTAKES = {
    "run faffi": "unknown method 'faffi': did you mean 'fafi'?",
    "run V99": "unknown method 'V99'",
    "compare fafi etff": "did you mean 'etf'?",
    "methods aurra": "did you mean 'aurora'?",
    "fusions featres": "did you mean 'features'?",
    "run fafi --alpha 0": "alpha = 0.0: it should be greater than 0",
    "run fafi --alpha -1": "alpha = -1.0: it should be greater than 0",
    "run fafi --alpha nan": "alpha = nan",
    "run fafi --alpha much": "'--alpha' / '-a': ",
    "run fafi --clients 5000": "5000 clients are more than the 1437 samples",
    "run fafi --clients 0": "clients = 0",
    "run fafi --data cifar10": "the files of cifar10 are missing: type `fedshot data download cifar10`",
    "run fafi --data cifr10": "did you mean 'cifar10'?",
    "run fafi --data folder:nowhere": "nowhere",
    "run fafi --recipe dirichl": "unknown partition recipe 'dirichl': did you mean 'dirichlet'?",
    "run fafi --recipe shards": "needs classes_per_client",
    "run fafi --recipe natural": "needs a data set that says who owns each sample",
    "run fafi --partition-file no.json": "there is no partition file 'no.json'",
    "run fafi --encoder resnet19": "unknown encoder 'resnet19': did you mean 'resnet18'?",
    "run fafi --set lrr=1": "unknown setting for fafi 'lrr': did you mean 'lr'?",
    "run etf --set wieght=1": "unknown setting for etf 'wieght': did you mean 'weight'?",
    "run etf --set weight=heavy": "method 'etf': weight takes a number of at least 0, not 'heavy'",
    "run etf --set anneal=cosin": "did you mean 'cosine'?",
    "run etf:wieght=1": "unknown option of method 'etf' 'wieght': did you mean 'weight'?",
    "run etf:weight": "'etf:weight': write etf:weight=VALUE",
    "run etf:weight=-1": "weight takes a number of at least 0, not '-1'",
    "run etf:weight=1 --set weight=2": "weight is given twice",
    "run fafi --set lr=fast": "lr = 'fast': it should be a valid number",
    "run fafi --set schedule=cosin": "unknown schedule 'cosin': did you mean 'cosine'?",
    "run fafi --set lr": "--set: write key=value, not 'lr'",
    "run fafi --set lr=1 --set lr=2": "--set: lr is given twice",
    "run fafi --seed 1 --set seed=2": "seed is given twice",
    "run fafi --set evaluate_at=3": "type it as --evaluate-at",
    "run fafi --set method=etf": "type it as METHOD",
    "run fafi --recipe iid --alpha 0.1": "alpha does nothing with recipe iid: leave it out",
    "run fafi --classes-per-client 2": "classes_per_client does nothing with recipe dirichlet",
    "run fafi --partition-file x.npz --recipe iid": "recipe does nothing with a partition file",
    "run fafi --set validation_most=5": "validation_most bounds what a client holds back, and that is nothing",
    "compare etf fafi V7": "etf and V7 are the same method: leave one of them out",
    "compare recommended recommended:sharpness=1.5": "are the same method: leave one of them out",
    "compare fafi --set validation_most=5": "validation_most bounds what a client holds back, and that is nothing",
    "compare fafi --seeds 3-1,2": "--seeds '3-1,2': write numbers as 1,2,3 or 1-3",
    "run nowhere.py": "there is no file 'nowhere.py'",
    "run fafi --evaluate-at often": "--evaluate-at 'often': write epochs as 5,10,20 or every:5",
    "run fafi --evaluate-at every:0": "write epochs as 5,10,20 or every:5",
    "run fafi --evaluate-at every:-2": "write epochs as 5,10,20 or every:5",
    "run fafi --evaluate-at 0": "evaluate_at = 0",
    "run fafi --epochs 3 --evaluate-at 2,4": "evaluation point 4 lies after the last of 3 epochs",
    "run fafi --fusion featres": "unknown fusion rule 'featres': did you mean 'features'?",
    "run fafi --fusion features:wieghts=uniform": "did you mean 'weights'?",
    "run fafi --fusion features:weights=heavy": "weights takes samples | sqrt_samples | uniform, not 'heavy'",
    "run fafi --fusion noise_informed:draws=0": "draws takes a whole number of at least 1",
    "run fafi --fusion typicality": "needs held-out images of every client: add --validation 0.1",
    "run fafi --fusion features:prototypes=reliability": "needs held-out images of every client",
    "run fedetf --fusion features:prototypes=class_counts": "need a head with one row for each class",
    "run otfusion --encoder vit": "vit",
    "run etf --set anchors=semantic": "need a file of class vectors",
    "run fedetf --set scale=0": "scale takes a number above 0, not '0'",
    "run aurora --set start.minimum=0": "start.minimum takes a number above 0",
    "run aurora --set sigma.learning_rate=-1": "sigma.learning_rate takes a number of at least 0",
    "run fafi --set files=x": "--set files=… is not possible: it is filled in",
    "run fafi --validation 1": "validation = 1.0",
    "run fafi --device tpu": "--device tpu is not here: this machine has",
    "run fafi --workers 0": "'--workers' / '-w'",
    "run fafi --unknown": "--unknown",
    "run": "Missing argument",
    "runn fafi": "No such command 'runn'. Did you mean 'run'?",
    "compare fafi --seeds 3-1": "--seeds '3-1': write numbers as 1,2,3 or 1-3",
    "compare fafi --seeds x": "--seeds 'x'",
    "compare a/my.py b/my.py": "there is no file 'a/my.py' to read a method from",
    "fuse nowhere": "nowhere is not the folder of a run: it has no spec.json",
    "fuse nowhere --fusion featres": "did you mean 'features'?",
    "fuse nowhere --without x": "--without 'x': write numbers as",
    "partition --alpha 0": "alpha = 0.0",
    "partition --recipe iid --alpha 0.1": "alpha does nothing with recipe iid: leave it out",
    "partition --save map.txt": "end the name in .json or .npz",
    "partition --image map.txt": "end the name in .png, .svg or .pdf",
    "partition --recipe diri": "unknown partition recipe",
    "data verify cifr10": "did you mean 'cifar10'?",
    "data nonsense": "No such command 'nonsense' (see fedshot data --help)",
}  # fmt: skip


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_is_one_line_and_writes_nothing(command: str, call: Callable) -> None:
    answer = call(*command.split())
    assert answer.status == 2
    assert answer.out == ""
    assert answer.err.startswith("fedshot: ")
    assert answer.err.count("\n") == 1 and answer.err.endswith("\n")
    assert MISTAKES[command] in answer.err
    assert list(Path.cwd().iterdir()) == []


NO_METHODS = {
    "x = 1\n": "must define one function that returns a Method",
    "def f(:\n": "does not run: SyntaxError",
    "import nothing_of_that_name\n": "does not run: ModuleNotFoundError: No module named 'nothing_of_that_name'",
    "raise RuntimeError('not today')\n": "does not run: RuntimeError: not today",
    "\0\1\2": "does not run",
}


@pytest.mark.parametrize("text", NO_METHODS)
def test_a_file_that_is_not_a_method(text: str, call: Callable, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    answer = call("run", str(tmp_path / "mine.py"))
    assert answer.status == 2
    assert NO_METHODS[text] in answer.err
    assert answer.err.count("\n") == 1
    assert list(Path.cwd().iterdir()) == []


def test_options_of_ones_own_method_are_checked_too(call: Callable, variant: Path, tmp_path: Path) -> None:
    assert "did you mean 'strength'?" in call("run", str(variant), "--set", "strenght=2").err
    assert "strength takes a number, not 'much'" in call("run", str(variant), "--set", "strength=much").err
    assert "unknown method in" in call("run", f"{variant}:lighter").err
    shadow = tmp_path / "shadow.py"
    shadow.write_text(variant.read_text().replace("strength", "momentum"))
    assert "its option 'momentum' is also a setting of every run: rename it" in call("run", str(shadow)).err
    demanding = tmp_path / "demanding.py"
    demanding.write_text(variant.read_text().replace("strength: float = 1.0", "strength: float"))
    assert "strength has no default: give it as strength=VALUE" in call("run", str(demanding)).err
    assert list(Path.cwd().iterdir()) == []


def test_a_variant_that_returns_something_else_is_told(call: Callable, variant: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.py"
    odd.write_text("from fedshot.method import Method\n\n\ndef mine() -> Method:\n    return None\n")
    for command in ("run", "methods"):
        assert f"{odd} must return a Method, not None" in call(command, str(odd)).err


def test_a_foreign_folder_is_not_touched(call: Callable) -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    Path("mine.txt").write_text("mine")
    assert "holds something that is not a run" in call("run", "fafi", "--out", "mine").err
    assert "mine.txt is a file: choose another --out" in call("run", "fafi", "--out", "mine.txt").err
    assert "mine.txt is a file: choose another --out" in call("run", "fafi", "--out", "mine.txt/run").err
    assert "it has no spec.json" in call("fuse", "mine").err
    assert sorted(str(p) for p in Path().rglob("*")) == ["mine", "mine.txt", "mine/notes.txt"]


def test_the_installed_program_says_the_same(program: Callable, tmp_path: Path) -> None:
    answer = program("run", "fafi", "--alpha", "0", cwd=tmp_path)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err == "fedshot: alpha = 0.0: it should be greater than 0\n"
    answer = program("run", "fafi", "--alfa", "1", cwd=tmp_path)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("fedshot: No such option") and "--alfa" in answer.err and answer.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
