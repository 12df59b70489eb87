"""`run`, `compare` and `fuse` from end to end, and what happens when a run is cut short."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedshot.report.wording import bytes_in_words

PROGRAM = Path(sys.executable).with_name("fedshot")
TELEMETRY = """
    client epoch base_loss align_loss lambda_raw lambda_effective lambda_equilibrium sigma_local sigma_align
    attenuation grad_norm clip_factor cos_prototype_anchor prototype_norm"""
RECORD = """
    final.accuracy curve.epoch curve.accuracy partition.recipe partition.fingerprint partition.overlap partition.sizes
    partition.entropy_bits clients.samples clients.upload_bytes clients.upload_sha256 clients.seconds
    cost.client_seconds cost.server_seconds cost.upload_bytes cost.peak_memory_bytes spec versions"""


def at(record: Any, path: str) -> Any:
    """The value under a dotted path, of every element of a list."""
    for part in path.split("."):
        record = [row[part] for row in record] if isinstance(record, list) else record[part]
    return record


def test_a_run_prints_the_record_alone(call: Callable, small: list[str]) -> None:
    answer = call("run", "V12", *small, "-e", "2", "--evaluate-at", "1", "--out", "r", "--json", "--set", "lr=0.01")
    assert (answer.status, answer.err) == (0, "")
    record = answer.json
    for path in RECORD.split():
        assert at(record, path) not in (None, [], {}), path
    assert record["curve"][-1]["accuracy"] == record["final"]["accuracy"]
    assert at(record, "curve.epoch") == [1, 2]
    assert (record["spec"]["method"], record["spec"]["lr"]) == ("etf_decoupled", 0.01)
    assert at(record, "clients.samples") == [40, 33, 17]
    assert record["cost"]["upload_bytes"] == sum(at(record, "clients.upload_bytes"))
    assert json.loads(Path("r/record.json").read_text()) == record
    rows = [json.loads(line) for line in Path("r/telemetry.jsonl").read_text().splitlines()]
    assert [(row["client"], row["epoch"]) for row in rows] == [(k, e) for k in range(3) for e in (1, 2)]
    assert all(set(TELEMETRY.split()) <= row.keys() for row in rows)


def test_a_run_for_people_goes_to_a_folder_named_after_it(call: Callable, small: list[str]) -> None:
    answer = call("run", "fafi", *small)
    assert answer.status == 0
    assert "%" in answer.out and "fafi" in answer.out
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("fafi-digits-seed1-")
    assert f"record: {folder / 'record.json'}" in answer.out
    assert (folder / "record.json").exists()


def test_an_alias_and_its_name_are_the_same_run(call: Callable, small: list[str]) -> None:
    tag, name = (call("run", method, *small, "--out", method, "--json").json for method in ("V4", "fafi"))
    assert tag["result_sha256"] == name["result_sha256"]
    inline = call("run", "V7:weight=0", *small, "--out", "v7", "--json").json
    assert at(inline, "clients.upload_sha256") == at(name, "clients.upload_sha256")
    assert inline["spec"]["options"]["weight"] == 0.0


def test_a_variant_of_ones_own_from_a_file(call: Callable, small: list[str], variant: Path) -> None:
    plain = call("run", str(variant), *small, "--out", "one", "--set", "strength=0", "--json").json
    strong = call("run", f"{variant}:heavier", *small, "--out", "two", "--set", "strength=3", "--json").json
    fafi = call("run", "fafi", *small, "--out", "three", "--json").json
    assert at(plain, "clients.upload_sha256") == at(fafi, "clients.upload_sha256")
    assert at(strong, "clients.upload_sha256") != at(fafi, "clients.upload_sha256")
    assert strong["spec"]["options"] == {"strength": 3.0}


FAULTY = {
    "step.logits": r"the term 'mine' must be one number, and its shape is \(32, 10\): take its mean",
    "1.5": "the term 'mine' must be a tensor that the model can learn from, not 1.5",
    "step.logits.detach().mean()": "none depends on the model",
    "step.logits @ step.logits": "faulty.py, line 12: RuntimeError: mat1 and mat2 shapes cannot be multiplied",
}


@pytest.mark.parametrize("value", FAULTY)
def test_a_faulty_term_is_named_before_anything_is_trained(value: str, call: Callable, small: list[str]) -> None:
    Path("faulty.py").write_text(
        f'''"""A variant with a mistake."""
from dataclasses import replace

from fedshot.local.objective import Objective, Step, Term
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi


def faulty() -> Method:
    """FAFI no more."""
    def mine(step: Step):
        return {value}
    return replace(fafi(), name="faulty", objective=lambda client: Objective(base=(Term("mine", mine),)))
'''
    )
    answer = call("run", "faulty.py", *small, "--out", "r")
    assert answer.status == 2 and re.search(FAULTY[value], answer.err) and answer.err.count("\n") == 1
    assert not Path("r").exists()


def test_a_mistake_while_a_method_is_made_is_told_with_its_line(call: Callable, small: list[str]) -> None:
    head = "from fedshot.method import Method\n\ndef boom() -> Method:\n"
    Path("boom.py").write_text(f"{head}    raise ValueError('boom')\n")
    answer = call("run", "boom.py", *small, "--out", "r")
    assert (answer.status, answer.err) == (2, "fedshot: boom.py, line 4: ValueError: boom\n")


def test_the_file_of_a_variant_is_known_whatever_its_folder_is_called(
    call: Callable, small: list[str], variant: Path
) -> None:
    Path("alpha=0.1,b").mkdir()
    moved = variant.rename(Path("alpha=0.1,b") / variant.name)
    assert str(moved) in call("run", str(moved), *small, "--json").json["spec"]["files"]


def test_an_edited_variant_is_another_run(call: Callable, small: list[str], variant: Path) -> None:
    assert call("run", str(variant), *small, "--out", "mine", "--json").status == 0
    variant.write_text(variant.read_text().replace("strength *", "2 * strength *"))
    answer = call("run", str(variant), *small, "--out", "mine", "--json", "--resume")
    assert answer.status == 2
    assert "(files differ)" in answer.err


def test_a_finished_run_is_shown_and_trained_again_only_if_asked(call: Callable, small: list[str]) -> None:
    command = ["run", "fafi", *small, "--out", "r"]
    first, kept = call(*command), Path("r/clients/0/upload.safetensors")
    before = kept.stat().st_mtime_ns
    again = call(*command)
    assert "this run was finished before and will not be trained again; --fresh does that" in again.err
    assert again.out == first.out and kept.stat().st_mtime_ns == before and "before" not in first.err
    fresh = call(*command, "--fresh")
    assert kept.stat().st_mtime_ns > before and "before" not in fresh.err


def test_a_run_of_another_version_is_not_taken_up(
    call: Callable, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["run", "fafi", *small, "--out", "r", "--json"]
    assert call(*command).status == 0
    monkeypatch.setattr("fedshot.store.__version__", "9.9.9")
    answer = call(*command)
    assert answer.status == 2 and "holds a run of fedshot 0." in answer.err and "compare --fresh" in answer.err
    Path("r/record.json").unlink()  # as if it had been interrupted
    assert call(*command).err == answer.err


def test_the_folder_of_another_run_is_refused_before_anything_is_said_of_it(call: Callable, small: list[str]) -> None:
    assert call("run", "fafi", *small, "--out", "r").status == 0
    answer = call("run", "fafi", *small, "--seed", "2", "--out", "r")
    assert answer.status == 2 and "holds a run of another spec (seed differ)" in answer.err
    assert "finished before" not in answer.err


def test_a_record_that_was_changed_is_not_believed(call: Callable, small: list[str]) -> None:
    command = ["run", "fafi", *small, "--out", "r", "--json"]
    true, file = call(*command).json, Path("r/record.json")

    def changed() -> None:
        record = json.loads(file.read_text())
        record["final"]["accuracy"] = 0.99
        file.write_text(json.dumps(record))

    changed()
    for told in (call("report", "r", "--markdown"), call("explain", "r"), call("results", "r")):
        assert "its results do not fit their hash, so it was changed" in told.err + told.out
        assert "99.0" not in told.out
    assert call(*command).json["final"] == true["final"]  # made again from the uploads
    assert json.loads(file.read_text())["result_sha256"] == true["result_sha256"]


def test_a_comparison_keeps_what_is_finished_and_lays_an_edited_variant_beside(
    call: Callable, small: list[str], variant: Path
) -> None:
    command = ["compare", "fafi", str(variant), *small, "--seeds", "1", "--out", "c"]
    call(*command)
    variant.write_text(variant.read_text().replace("strength *", "2 * strength *"))
    edited = call(*command)
    assert "1 of 2 runs were finished before" in edited.err
    (old, new) = sorted(Path("c", variant.name).iterdir())
    assert (old.name, new.name[:7]) == ("seed-1", "seed-1-") and len(new.name) == 15
    assert "2 of 2 runs were finished before" in call(*command).err
    page = call(*command, "--json").json[str(variant)]
    assert page == [json.loads((new / "record.json").read_text())]


def test_an_edited_variant_is_run_again_without_a_word(call: Callable, small: list[str], variant: Path) -> None:
    first = call("run", str(variant), *small, "--json").json
    variant.write_text(variant.read_text().replace("strength *", "2 * strength *"))
    second = call("run", str(variant), *small, "--json").json
    assert at(first, "clients.upload_sha256") != at(second, "clients.upload_sha256")
    assert len(list(Path("runs").iterdir())) == 2


def test_methods_of_one_file_name_have_folders_of_their_own(call: Callable, small: list[str], variant: Path) -> None:
    for folder in (Path("a"), Path("b")):
        folder.mkdir()
        (folder / "mine.py").write_text(variant.read_text())
    assert call("compare", "a/mine.py", "b/mine.py", *small, "--seeds", "1", "--out", "both").status == 0
    assert sorted(path.parent.name for path in Path("both").glob("*/seed-1")) == ["a-mine.py", "b-mine.py"]


def test_a_variant_that_breaks_in_training_stops_no_other(call: Callable, small: list[str], variant: Path) -> None:
    late = "(step.nothing if step.progress else strength) * CLASSIFICATION"  # not in the first step
    variant.write_text(variant.read_text().replace("strength * CLASSIFICATION", late))
    answer = call("compare", "fafi", str(variant), *small, "--seeds", "1", "--out", "both")
    assert answer.status == 1
    assert "nothing" in answer.err and "heavier.py" in answer.err
    assert Path("both/fafi/seed-1/record.json").exists()
    assert Path("both/report.html").exists()


def test_an_upload_in_eight_bits_is_a_quarter_of_the_bytes(call: Callable, small: list[str]) -> None:
    full = call("run", "fafi", *small, "--out", "full", "--json").json
    eight = call("run", "fafi", *small, "--out", "eight", "--json", "--set", "upload_precision=int8").json
    assert eight["cost"]["upload_bytes"] < 0.3 * full["cost"]["upload_bytes"]


@pytest.fixture
def run_folder(call: Callable, small: list[str]) -> Path:
    assert call("run", "fafi", *small, "--validation", "0.2", "--out", "r", "--json").status == 0
    return Path("r")


def test_every_rule_on_the_uploads_of_one_run(call: Callable, run_folder: Path) -> None:
    record = json.loads((run_folder / "record.json").read_text())
    rows = {row["fusion"]: row for row in call("fuse", str(run_folder), "--json").json}
    listed = {row["name"] for row in call("fusions", "--json").json}
    assert rows.keys() == listed - {"distilled", "single"}  # which train a model
    assert {name for name, row in rows.items() if "error" in row} == {"common", "routed"}  # not in these uploads
    assert rows["features"]["accuracy"] == record["final"]["accuracy"]
    assert rows["features"]["upload_bytes"] == record["cost"]["upload_bytes"]
    table = call("fuse", str(run_folder)).out
    assert "batch_moments *" in table and "* transductive" in table
    assert all(name in table for name in rows)
    assert "not tried, since they train a model: distilled, single; name one with -f" in table
    (line,) = [line for line in table.splitlines() if line.startswith("features ")]
    assert f" {bytes_in_words(record['cost']['upload_bytes'] / 3)} " in line  # of a client, as everywhere


def test_a_rule_that_is_not_possible_gets_the_true_reason(call: Callable, small: list[str]) -> None:
    assert call("run", "fafi", *small, "--validation", "0.2", "--set", "counts=noised:0.5", "--out", "n").status == 0
    (row,) = call("fuse", "n", "-f", "typicality", "--json").json
    assert row["error"].startswith("counts are noised, but fusion typicality needs the section familiarity")


def test_rules_with_many_options_can_be_told_apart(
    call: Callable, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = [f"features:weights=uniform,scale=unit,prototypes={kind}" for kind in ("uniform", "class_counts")]
    table = call("fuse", str(run_folder), "-f", long[0], "-f", long[1]).out
    assert "…" not in table
    named = "".join(line[: line.find("  ")] if "  " in line else line for line in table.splitlines())
    assert all(name in named.replace(" ", "") for name in long)


def test_who_waits_for_the_server_is_told_where_it_stands(
    call: Callable, small: list[str], run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedshot.cli.progress._SECONDS_BETWEEN_LINES", 0.0)
    student = "distilled:images=noise,count=40,student.passes=3"
    for said in (
        call("fuse", str(run_folder), "-f", student).err,
        call("run", "fafi", *small, "--fusion", student).err,
    ):
        assert "asking model 3 of 3 about images 1 to 160 of 160" in said
        assert "training a student at the server: 3 of 3 passes over 160 images" in said
    assert call("fuse", str(run_folder), "-f", student, "--json").err == ""


def test_a_choice_can_be_made_on_what_clients_held_back(call: Callable, small: list[str], run_folder: Path) -> None:
    held_back = sum(
        row["validation_samples"] for row in json.loads((run_folder / "record.json").read_text())["clients"]
    )
    rules = ("-f", "features", "-f", "logits")
    assert {row["images"] for row in call("fuse", str(run_folder), *rules, "--on", "held-out", "--json").json} == {
        held_back
    }
    table = call("fuse", str(run_folder), *rules, "--on", "held-out").out
    assert f"on {held_back} images that clients held back" in table and "test" not in table and " read" not in table
    both = " ".join(
        call("fuse", str(run_folder), "-f", "typicality", "-f", "batch_moments", "--on", "held-out").out.split()
    )
    assert "typicality reads what clients found on these very images" in both
    assert "* transductive: reads statistics of the held-out images" in both
    assert "choose by what clients hold back, --on held-out" in call("fuse", str(run_folder), *rules).out
    assert call("run", "fafi", *small, "--out", "bare").status == 0
    assert "train with --validation 0.1" in call("fuse", "bare", *rules).out
    student = "distilled:views=1,student.passes=1"
    told = call(
        "fuse", str(run_folder), "-f", student, "--public", "synthetic:images=40,size=8,channels=1", "--on", "held-out"
    )
    assert "% of the held-out images" in " ".join(told.out.split())
    refused = call("fuse", str(run_folder), "--on", "held-out", "--out", "o")
    assert refused.status == 2 and "keeps records of both" in refused.err
    (row,) = call("fuse", str(run_folder), "-f", "logits", "--out", "o", "--json").json
    kept, (held,) = (
        json.loads(Path(row["run"], "record.json").read_text()),
        call("fuse", str(run_folder), "-f", "logits", "--on", "held-out", "--json").json,
    )
    assert kept["held_out"]["accuracy"] == held["accuracy"] and (row["on"], held["on"]) == ("test", "held-out")
    useless = call("fuse", str(run_folder), "-f", "logits", "--public", "synthetic")
    assert useless.status == 2 and "no rule that is named by -f reads public images" in useless.err


@pytest.mark.parametrize(
    ("kept", "told"), [([], "nothing was kept: --out keeps"), (["--out", "o"], "rules that are done are kept in o")]
)
def test_rules_that_are_interrupted_say_what_is_kept(
    kept: list[str], told: str, call: Callable, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedshot.server.fuse_again", interrupted)
    monkeypatch.setattr("fedshot.another_rule.keep_rule", interrupted)
    answer = call("fuse", str(run_folder), *kept)
    assert answer.status == 130 and f"fedshot: interrupted; {told}" in answer.err


def test_a_screen_names_the_upload_that_it_could_not_read(call: Callable, run_folder: Path) -> None:
    assert call("screen", str(run_folder)).status == 0
    upload = run_folder / "clients/1/upload.safetensors"
    upload.write_bytes(upload.read_bytes()[:1000])
    answer = call("screen", str(run_folder))
    assert answer.status == 1 and "client 1 was not screened: upload refused: " in answer.out
    told = call("screen", str(run_folder), "--json")
    assert told.status == 1 and told.json["not_screened"].keys() == {"1"} and not told.json["suspects"]
    upload.unlink()
    assert "client 1 was not screened: its upload is not there" in call("screen", str(run_folder)).out


OWN_RULE = '''
from collections.abc import Sequence
from dataclasses import replace

from fedshot.fusion import Fusion, Member, Predictor, make_fusion
from fedshot.task import Task

def mine(scale: float = 2.0) -> Fusion:
    """Logits, scaled."""
    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        plain = make_fusion("logits").fuse(members, task)
        return replace(plain, combine=lambda outputs: scale * plain.combine(outputs))
    return Fusion("mine", fuse)
'''


def test_a_rule_of_ones_own_is_named_by_its_file(call: Callable, run_folder: Path, small: list[str]) -> None:
    Path("own.py").write_text(OWN_RULE)
    rows = {row["fusion"]: row for row in call("fuse", "r", "-f", "logits", "-f", "own.py:mine:scale=1", "--json").json}
    assert rows["own.py:mine:scale=1"]["nll"] == rows["logits"]["nll"]
    kept = call("fuse", "r", "-f", "own.py", "--out", "kept", "--json").json[0]
    elsewhere = call("fuse", "r", "-f", str(Path("own.py").absolute()), "--out", "there", "--json").json[0]
    assert (kept["run"], elsewhere["run"]) == ("kept/own.py", "there/own.py")
    record = json.loads(Path("kept/own.py/record.json").read_text())
    assert record["final"]["fusion"] == record["spec"]["fusion"] == "own.py" and record["final"]["nll"] == kept["nll"]
    assert "own.py" in record["spec"]["files"] and kept["nll"] != rows["logits"]["nll"]
    trained = call("run", "fafi", *small, "--validation", "0.2", "--fusion", "own.py", "--out", "own", "--json").json
    assert trained["result_sha256"] == record["result_sha256"]
    assert "Logits, scaled." in call("fusions", "own.py").out
    assert call("fuse", "own", "-f", "features", "--out", "other", "--json").json[0]["accuracy"] > 0
    Path("own.py").write_text(OWN_RULE.replace("scale *", "3 * scale *"))
    assert call("fuse", "own", "-f", "own.py", "--json").json[0]["nll"] != kept["nll"]  # edited, and tried again
    edited = call("run", "fafi", *small, "--validation", "0.2", "--fusion", "own.py", "--out", "own")
    assert edited.status == 2 and "(files differ)" in edited.err
    Path("own.py").unlink()
    assert call("screen", "own").status == 0 and call("fuse", "own", "-f", "features", "--json").status == 0


def test_runs_by_rules_of_ones_own_share_their_clients(call: Callable) -> None:
    Path("own.py").write_text(OWN_RULE)
    options = ["methods: fafi", "fusion: [features, own.py]", "seeds: 1", "epochs: 1", "clients: 2", "batch_size: 64"]
    Path("s.yaml").write_text("\n".join(options))
    planned = call("study", "s.yaml", "--dry-run", "--json").json
    assert (planned["runs"], planned["clients"], planned["shared"]) == (2, 2, 2)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("scale * plain", "scale @ plain", "own.py, line 12: "),
        ('make_fusion("logits")', 'make_fusion("logist")', "unknown fusion rule 'logist'"),
        ("-> Fusion", "-> object", "must define one function that returns a Fusion"),
        ('return Fusion("mine", fuse)', "return None", "own.py must return a Fusion, not None"),
        ("return replace(plain, combine=", "return (replace, ", "own.py: its fuse must return a Predictor"),
        ("scale * plain", "float('nan') * plain", "own.py: the scores of 360 of 360 images are not all finite numbers"),
        ("scale * plain.combine(outputs)", "outputs.logits", "own.py: scores must be a tensor of images × classes"),
    ],
)
def test_a_mistake_in_a_rule_of_ones_own_is_one_line(
    old: str, new: str, told: str, call: Callable, run_folder: Path
) -> None:
    Path("own.py").write_text(OWN_RULE.replace(old, new))
    answer = call("fuse", str(run_folder), "-f", "own.py")
    assert answer.status == 2 and told in " ".join((answer.err + answer.out).split()) and "Traceback" not in answer.err


def test_a_rule_that_fails_at_the_test_images_leaves_the_others_their_rows(call: Callable, run_folder: Path) -> None:
    Path("own.py").write_text(OWN_RULE.replace("scale * plain", "scale @ plain"))
    answer = call("fuse", str(run_folder), "-f", "logits", "-f", "own.py", "-f", "features", "--json")
    rows = {row["fusion"]: row for row in answer.json}
    assert answer.status == 2 and "line 12" in rows["own.py"]["error"]
    assert rows["logits"]["accuracy"] > 0 and rows["features"]["accuracy"] > 0


def test_rules_and_clients_can_be_chosen(call: Callable, run_folder: Path) -> None:
    chosen = ["-f", "features:weights=uniform", "-f", "typicality"]
    rows = call("fuse", str(run_folder), *chosen, "--without", "1", "--json").json
    assert {row["fusion"] for row in rows} == {"features:weights=uniform", "typicality"}
    assert all(row["clients"] == [0, 2] for row in rows)
    assert "without client 1: left out on request" in call("fuse", str(run_folder), *chosen, "--without", "1").out
    wrong = call("fuse", str(run_folder), "--without", "7")
    assert (wrong.status, wrong.err) == (2, "fedshot: there is no client 7: the clients are 0 to 2\n")


def test_a_damaged_upload_is_told_by_fuse(call: Callable, run_folder: Path) -> None:
    (run_folder / "clients/1/upload.safetensors").write_bytes(b"garbage")
    answer = call("fuse", str(run_folder), "-f", "logits")
    assert answer.status == 0
    assert "without client 1: upload refused: not a fedshot upload" in answer.out


def test_a_rule_without_its_statistics_is_told(call: Callable, small: list[str]) -> None:
    call("run", "fafi", *small, "--out", "r", "--json")
    answer = call("fuse", "r", "-f", "typicality", "-f", "features")
    assert answer.status == 2
    assert "typicality: not possible, the uploads carry no familiarity: train with --validation 0.1" in " ".join(
        answer.out.split()
    )


def test_rules_are_kept_as_runs(call: Callable, run_folder: Path) -> None:
    chosen = ["-f", "logits:weights=uniform", "-f", "routed", "-f", "typicality"]
    answer = call("fuse", str(run_folder), *chosen, "--out", "kept")
    assert answer.status == 2 and "routed: not possible, fusion routed needs common" in " ".join(answer.out.split())
    assert "runs: kept" in answer.out
    assert sorted(path.name for path in Path("kept").iterdir()) == ["logits-weights-uniform", "typicality"]
    rows = {row["fusion"]: row for row in call("fuse", str(run_folder), *chosen, "--out", "kept", "--json").json}
    printed = {row["fusion"]: row for row in call("fuse", str(run_folder), *chosen, "--json").json}
    for text in ("logits:weights=uniform", "typicality"):
        assert {key: rows[text][key] for key in printed[text]} == printed[text]
        record = json.loads(Path(rows[text]["run"], "record.json").read_text())
        assert record["spec"]["fusion"] == text and record["final"]["accuracy"] == rows[text]["accuracy"]
    kept = call("report", "kept", "--records", "kept.jsonl")
    assert kept.status == 0 and "2 new" in kept.out
    refused = call("fuse", str(run_folder), "-f", "logits", "--without", "1", "--out", "kept")
    assert refused.status == 2 and "--without does not go with --out" in refused.err


def test_compare_two_methods_over_two_seeds(call: Callable, small: list[str]) -> None:
    answer = call("compare", "fedavg", "V7:weight=1", *small, "--seeds", "1-2", "--out", "c")
    assert answer.status == 0
    assert "fedavg" in answer.out and "V7:weight=1" in answer.out and "±" in answer.out
    assert Path("c/report.html").exists() and "c/report.html" in answer.out
    assert answer.err.count("seed") == 4  # one line for each finished run
    for method in ("fedavg", "V7-weight-1"):
        for seed in (1, 2):
            record = json.loads(Path(f"c/{method}/seed-{seed}/record.json").read_text())
            assert record["spec"]["seed"] == seed
    runs = call("compare", "fedavg", "V7:weight=1", *small, "--seeds", "1,2", "--out", "c", "--resume", "--json")
    assert runs.err == ""
    assert {name: [r["spec"]["seed"] for r in records] for name, records in runs.json.items()} == {
        "fedavg": [1, 2],
        "V7:weight=1": [1, 2],
    }


def test_the_methods_of_a_comparison_share_their_partition(call: Callable) -> None:
    options = ["-k", "2", "-e", "1", "-w", "1", "--recipe", "shards", "--classes-per-client", "1", "--seeds", "3"]
    runs = call("compare", "fafi", "fedavg", *options, "--out", "c", "--json").json
    (one,), (other,) = runs["fafi"], runs["fedavg"]
    assert one["partition"] == other["partition"]
    assert one["partition"]["parameters"]["classes_per_client"] == 1


MORTAL = '''
import os, time
from dataclasses import replace
from pathlib import Path

from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi

def mortal() -> Method:
    """FAFI whose client 1 kills its process once client 0 has finished."""
    def objective(client: Client):
        if client.id == 1 and not Path("healed").exists():
            while not Path("r/clients/0/client.json").exists():
                time.sleep(0.02)
            os._exit(9)
        return fafi().objective(client)
    return replace(fafi(), objective=objective)
'''


def test_a_worker_that_dies_is_told_and_the_run_goes_on_with_resume(
    program: Callable, call: Callable, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mortal.py").write_text(MORTAL)
    command = ["run", "mortal.py", *small, "--json", "--out"]
    died = program(*command, "r", "--workers", "2", cwd=tmp_path)
    assert (died.status, died.out) == (1, "")
    assert died.err.startswith("fedshot: a worker process died")
    assert "finished clients are kept: the same command, without --fresh, goes on" in died.err
    assert died.err.count("\n") == 1
    kept = Path("r/clients/0/client.json")
    before = kept.stat().st_mtime_ns
    assert not Path("r/record.json").exists()
    Path("healed").touch()
    healed = call(*command, "r", "--resume")
    assert (healed.status, healed.err) == (0, "")
    assert kept.stat().st_mtime_ns == before
    assert healed.json["result_sha256"] == call(*command, "whole").json["result_sha256"]


def test_an_interrupt_while_workers_are_started_has_one_line(tmp_path: Path, three_clients: str) -> None:
    command = [PROGRAM, "run", "fafi", "--partition-file", three_clients, "-k", "3", "-w", "2", "-e", "5000"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = subprocess.Popen([*command, "--out", "r"], cwd=tmp_path, start_new_session=True, **pipes)
    while running.poll() is None and not _has_fork_server(running.pid):
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, "")
    assert err == "fedshot: interrupted; finished clients are kept: the same command goes on\n"


def _has_fork_server(parent: int) -> bool:
    listed = subprocess.run(["ps", "-eo", "ppid=,args="], capture_output=True, text=True, check=True).stdout
    return any(row.split()[0] == str(parent) and "forkserver" in row for row in listed.splitlines())


def test_an_interrupt_keeps_what_is_finished_and_leaves_no_process(tmp_path: Path, three_clients: str) -> None:
    clients = ["--partition-file", three_clients, "-k", "3", "-w", "2"]
    command = [PROGRAM, "run", "fafi", *clients, "-e", "5000", "--evaluate-at", "1", "--out", "r"]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **pipes)
    for _ in range(1200):
        if (tmp_path / "r/clients/0/at_1.safetensors").exists():
            break
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    try:
        out, err = running.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        raise
    assert running.returncode == 130
    assert out == ""
    assert err == "fedshot: interrupted; finished clients are kept: the same command goes on\n"
    for _ in range(100):
        try:
            os.killpg(running.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.05)
    else:
        raise AssertionError("a worker outlived the program")


def test_rules_of_two_files_of_one_name_are_kept_side_by_side(call: Callable, small: list[str]) -> None:
    assert call("run", "fafi", *small, "--out", "run").status == 0
    text = (Path(__file__).parents[2] / "examples" / "confident_vote.py").read_text()
    for folder in "ab":
        Path(folder).mkdir()
        Path(folder, "vote.py").write_text(f"{text}\n# {folder}\n")
    kept = call("fuse", "run", "-f", "a/vote.py", "-f", "b/vote.py", "--out", "rules")
    assert kept.status == 0 and "not possible" not in kept.out + kept.err
    assert sorted(place.name for place in Path("rules").iterdir()) == ["a-vote.py", "b-vote.py"]
