"""`fedshot study` from end to end: a grid, what is kept, what fails, what it would cost, jobs of a cluster."""

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedshot.record import read_record

HERE = ("--device", "cpu", "--workers", "1")


@pytest.fixture
def write(three_clients: str, call: Callable) -> Callable[..., str]:
    """Writes a study of tiny runs; more lines by keyword."""

    def make(name: str = "tiny", **lines: Any) -> str:
        settings = {"methods": ["fafi", "V7"], "seeds": [1, 2], "epochs": 1, "clients": 3, "batch_size": 16}
        settings |= {"partition_file": three_clients, **lines}
        file = Path(f"{name}.yaml")
        file.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items()))
        return str(file)

    return make


def hashes(answer: Any) -> list[str]:
    return [run["result_sha256"] for run in answer.json["runs"]]


def test_a_study_is_run_once_and_goes_on(call: Callable, write: Callable) -> None:
    file = write(epochs=[1, 2])
    estimate = call("study", file, "--dry-run", "--json", *HERE).json
    assert (estimate["runs"], estimate["new"], estimate["sample_epochs"]) == (8, 8, 4 * 90 * 3)
    assert estimate["seconds"] > 0 and "quick timing of a step of fafi" in estimate["source"]
    assert not Path("runs").exists(), "a dry run writes nothing"
    first = call("study", file, *HERE)
    assert first.status == 0
    assert "fafi" in first.out and "epochs 1" in first.out and "(2 seeds)" in first.out
    assert "runs: runs/tiny/runs" in first.out and "fedshot results runs/tiny" in first.out
    assert first.err.count("seed 1") == 4 and "[8/8] V7 epochs 2 seed 2" in first.err
    folders = sorted(Path("runs/tiny/runs").iterdir())
    assert len(folders) == 8
    assert all(read_record(f / "record.json").spec.sha256.startswith(f.name) for f in folders)  # type: ignore[union-attr]
    before = [(folder / "record.json").stat().st_mtime_ns for folder in folders]
    definition = json.loads(Path("runs/tiny/studies/tiny.json").read_text())
    assert definition["study"]["methods"] == ["fafi", "V7"]
    assert {run["run"] for run in definition["runs"]} == {folder.name for folder in folders}
    other = write("larger", methods=["etf", "fafi"], seeds=[1, 3])  # V7 is etf, and shares its run
    planned = call("study", other, "--out", "runs/tiny", "--dry-run", *HERE).out
    assert "4 runs: 2 new, 0 part done, 2 done" in planned and "from 8 finished runs of digits here" in planned
    again = call("study", other, "--out", "runs/tiny", "--json", *HERE)
    assert (again.status, again.err) == (0, "")
    assert [(folder / "record.json").stat().st_mtime_ns for folder in folders] == before
    assert len(list(Path("runs/tiny/runs").iterdir())) == 10
    assert len(set(hashes(again))) == 4


def test_rules_share_their_clients(call: Callable, write: Callable) -> None:
    file = write(methods=["fafi"], fusion=["features", "logits"])
    words = call("study", file, "--dry-run", *HERE).out
    assert "4 runs: 4 new" in words and "to train: 6 clients, 180 samples × epochs" in words
    assert "shared: 6 clients of runs that differ only in the fusion rule" in words
    assert call("study", file, *HERE).status == 0
    more = write(methods=["fafi"], fusion=["features", "logits", "moments"])
    estimate = call("study", more, "--dry-run", "--json", *HERE).json
    assert (estimate["new"], estimate["clients"], estimate["shared"], estimate["disk_bytes"]) == (2, 0, 6, 0)
    shared = call("study", more, "--json", *HERE)
    rows = call("report", "runs/tiny", "--records", "tiny.jsonl")
    assert rows.status == 0 and len(Path("tiny.jsonl").read_text().splitlines()) == 6
    for run in shared.json["runs"]:  # each folder is complete by itself
        folder = run["folder"]
        assert call("fuse", folder, "-f", "average").status == call("explain", folder).status == 0
    for rule in ("features", "logits", "moments"):
        alone = call("study", write("alone", methods=["fafi"], fusion=rule), "--out", f"alone/{rule}", "--json", *HERE)
        assert hashes(alone) == [r["result_sha256"] for r in shared.json["runs"] if r["at"]["fusion"] == rule]


def test_finished_clients_are_kept(call: Callable, write: Callable) -> None:
    file = write(methods=["fafi"], seeds=[1])
    whole = call("study", file, "--json", *HERE)
    folder = Path(whole.json["runs"][0]["folder"])
    kept = folder / "clients/0/client.json"
    before = kept.stat().st_mtime_ns
    for lost in ("record.json", "clients/1/client.json"):
        (folder / lost).unlink()
    assert "1 run: 0 new, 1 part done, 0 done" in call("study", file, "--dry-run", *HERE).out
    assert hashes(call("study", file, "--json", *HERE)) == hashes(whole)
    assert kept.stat().st_mtime_ns == before


def test_a_run_killed_before_its_first_file_had_a_name_begins_again(call: Callable, write: Callable) -> None:
    file = write(methods=["fafi"], seeds=[1])
    whole = call("study", file, "--json", *HERE)
    folder = Path(whole.json["runs"][0]["folder"])
    half = Path("other/runs") / folder.name / ".spec.json.1.part"
    half.parent.mkdir(parents=True)
    half.write_text("{")
    assert hashes(call("study", file, "--out", "other", "--json", *HERE)) == hashes(whole)


FRAGILE = '''
from dataclasses import replace

from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi

def fragile() -> Method:
    """FAFI whose client 1 cannot train."""
    def objective(client: Client):
        if client.id == 1:
            raise ZeroDivisionError("in client 1")
        return fafi().objective(client)
    return replace(fafi(), objective=objective)
'''


def test_a_failure_stops_no_other_run_and_is_listed(call: Callable, write: Callable) -> None:
    Path("fragile.py").write_text(FRAGILE)
    file = write(methods=["fragile.py", "fafi"], seeds=[1])
    answer = call("study", file, *HERE)
    assert answer.status == 1
    assert "failed: method fragile.py, seed 1: in client 1 (runs/tiny/runs/" in answer.err
    assert "1 of 2 runs failed; the same command tries them again" in answer.err
    assert "fafi" in answer.out
    states = [run["state"] for run in call("study", file, "--json", *HERE).json["runs"]]
    assert states == ["failed", "done"]


def test_all_mistakes_are_told_with_their_axis_before_anything_is_trained(call: Callable, write: Callable) -> None:
    file = write(
        methods=["fafi", "faffi", "etf:wieght=0"],
        seeds=[1, 2],
        batch_size=[16, 1],
        include=[{"method": "fafi", "batch_size": 16, "clients": 4}],
    )
    answer = call("study", file, *HERE)
    assert (answer.status, answer.out) == (2, "")
    lines = answer.err.splitlines()
    assert lines[0] == "fedshot: 12 of 14 runs cannot be prepared; nothing was trained"
    assert any("  method = faffi (4 runs): unknown method 'faffi': did you mean 'fafi'?" in line for line in lines)
    assert any("method = etf:wieght=0" in line and "did you mean 'weight'" in line for line in lines)
    assert any("batch_size = 1" in line and "greater than or equal to 2" in line for line in lines)
    assert any(line.startswith("  clients = 4 (2 runs): ") and "over 3 clients, not 4" in line for line in lines)
    assert not Path("runs").exists()


def test_a_folder_in_use_is_told(call: Callable, write: Callable) -> None:
    from fedshot.study.lock import alone_in

    with alone_in(Path("runs/tiny")):
        answer = call("study", write(), *HERE)
    assert answer.status == 2 and "runs/tiny is in use by process" in answer.err


def test_finished_runs_go_to_a_tracker(call: Callable, write: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise ConnectionError("offline")

    module = type(sys)("wandb")
    module.init = refuse  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", module)
    answer = call("study", write(methods=["fafi"]), "--track", "wandb", "--json", *HERE)
    assert answer.status == 0 and [run["state"] for run in answer.json["runs"]] == ["done", "done"]
    assert answer.err.count("wandb failed (ConnectionError: offline)") == 1
    assert call("study", write(), "--track", "tensorbord", *HERE).status == 2


SUBMITIT = """
class Job:
    def __init__(self, job_id): self.job_id = job_id

class AutoExecutor:
    def __init__(self, folder): self.folder, self.jobs = folder, []
    def update_parameters(self, timeout_min=5): assert timeout_min == 60, timeout_min
    def submit(self, work, *given):
        work(*given)  # a patient cluster
        self.jobs.append(given)
        return Job(len(self.jobs))
    def map_array(self, work, *columns):
        return [Job(f"7_{n}") for n, given in enumerate(zip(*columns))]
"""


def test_jobs_of_a_cluster(call: Callable, write: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(methods=["fafi"])
    monkeypatch.setitem(sys.modules, "submitit", None)
    options = ("--slurm-set", "timeout_min=60", "--device")
    assert "pip install 'fedshot[slurm]'" in call("study", file, "--slurm", *options, "cpu").err
    monkeypatch.delitem(sys.modules, "submitit")
    (tmp_path / "submitit.py").write_text(SUBMITIT)
    monkeypatch.syspath_prepend(tmp_path)
    array = call("study", file, "--slurm-array", *options, "cuda", "--json")
    assert array.json["jobs"] == ["7_0", "7_1"]
    answer = call("study", file, "--slurm", *options, "cpu", "--workers", "1")
    assert answer.status == 0 and "submitted 2 jobs: 1 2" in answer.out
    assert "2 runs: 0 new, 0 part done, 2 done" in call("study", file, "--dry-run", *HERE).out
    rules = write("rules", methods=["fafi"], fusion=["logits", "average"])  # of two seeds: two jobs
    assert call("study", rules, "--slurm", *options, "cpu", "--workers", "1", "--json").json["jobs"] == ["1", "2"]
    assert "4 runs: 0 new, 0 part done, 4 done" in call("study", rules, "--dry-run", *HERE).out
    assert call("study", file, "--slurm", *options, "cpu", "--json").json["jobs"] == [], "nothing is left to submit"
    assert "--slurm only submits" in call("study", file, "--slurm", *options, "cpu", "--dry-run").err
    assert "say where the jobs compute" in call("study", file, "--slurm").err
    assert "--slurm-set does nothing" in call("study", file, "--slurm-set", "timeout_min=60").err
    assert "submitit refuses it" in call("study", file, "--slurm", "--slurm-set", "nonsense=1", "--device", "cpu").err


ROOT = Path(__file__).parents[2]


def test_the_study_of_the_docs_runs(call: Callable) -> None:
    """The file is shown in full; a smaller copy of it goes through every command of its page."""
    text, page = (ROOT / "examples/skew.yaml").read_text(), (ROOT / "docs/studies.md").read_text()
    assert f"```yaml\n{text}```" in page
    assert "27 runs: 27 new" in call("study", str(ROOT / "examples/skew.yaml"), "--dry-run", *HERE).out
    choice = (ROOT / "examples/choice.yaml").read_text()
    for large, little in {
        "images=300": "images=60",
        "epochs: 3": "epochs: 1",
        "seeds: [1, 2, 3]": "seeds: [1, 2]",
    }.items():
        assert large in text and large in choice
        text, choice = text.replace(large, little), choice.replace(large, little)
    Path("examples").mkdir()
    Path("examples/skew.yaml").write_text(text)
    Path("examples/choice.yaml").write_text(choice)
    rules = (ROOT / "examples/rules.yaml").read_text()
    assert f"```yaml\n{rules}```" in page
    Path("examples/rules.yaml").write_text(rules.replace("images=300", "images=60").replace("[1, 2, 3]", "[1]"))
    lines = re.findall(r"^fedshot (?!.*--slurm|study notes-plan)(.*)$", page, flags=re.M)
    assert len(lines) == 14
    for line in lines:
        words = shlex.split(line)
        answer = call(*words, *(HERE if words[0] == "study" else ()))
        assert (answer.status, answer.out != "") == (0, True), answer.err
        told = "fedshot results runs/choice --pivot rows=variant,columns=alpha,value=held_out.accuracy"
        assert (told in answer.out) == ("examples/choice.yaml" in words)
    assert Path("ranks.svg").exists()


def test_a_study_ends_with_the_differences_it_asks_for(call: Callable, tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text("methods: [fafi, etf]\ndata: digits:images=100\nclients: 2\nepochs: 1\nagainst: fafi\n")
    shown = call("study", str(file), "--out", str(tmp_path / "out"), "--set", "seeds=1,2", "--workers", "1")
    assert shown.status == 0 and "difference" in shown.out and "against-fafi.md" in shown.out
    table = (tmp_path / "out" / "against-fafi.md").read_text().splitlines()
    assert table[0] == "| variant | accuracy | personal | difference | p | s | kB |"
    assert table[2].startswith("| etf |") and table[2].endswith("| 0.0 |")  # etf sends nothing more than fafi
