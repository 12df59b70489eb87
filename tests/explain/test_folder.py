"""A folder of runs: what is damaged is named and left out, the rest is explained, and runs are seen together."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fedshot.errors import UserError
from fedshot.explain import explain, explain_path
from fedshot.explain.finding import SEVERITIES
from fedshot.explain.loaded import load
from fedshot.explain.run import Run


@pytest.fixture
def copied(healthy: Path, tmp_path: Path) -> Callable[[str], Path]:
    """The healthy run under another name in an own folder, without its large uploads."""

    def get(name: str) -> Path:
        return Path(shutil.copytree(healthy, tmp_path / "runs" / name, ignore=shutil.ignore_patterns("*.safetensors")))

    return get


def reasons(folder: Path) -> dict[str, str]:
    return {str(problem.path.relative_to(folder)): problem.reason for problem in explain_path(folder).problems}


def test_damaged_and_unfinished_runs_are_named_and_the_rest_is_explained(copied: Callable, tmp_path: Path) -> None:
    copied("good")
    copied("cut").joinpath("record.json").write_text('{"spec": {"method"')
    copied("other").joinpath("record.json").write_text('{"versions": {"fedshot": "9.9.9"}, "spec": 1}')
    copied("strange").joinpath("record.json").write_text("[]")
    copied("unfinished").joinpath("record.json").unlink()
    (tmp_path / "runs" / "nothing").mkdir()
    found = explain_path(tmp_path / "runs")
    assert [run.name for run in found.runs] == ["good"]
    assert {finding.name for finding in found.runs[0].findings} == {"equal_terms", "dead_term"}
    told = reasons(tmp_path / "runs")
    assert set(told) == {"cut", "other", "strange", "unfinished", "nothing"}
    assert "damaged" in told["cut"] and "damaged" in told["strange"] and told["nothing"] == "an empty folder"
    assert (
        "fedshot 9.9.9" in told["other"]
        and "run its command again" in told["unfinished"]
        and "3 clients" in told["unfinished"]
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda record: record["partition"]["class_counts"].pop(), "not of these clients"),
        (lambda record: record["partition"]["class_counts"][0].pop(), "classes differ in number"),
        (lambda record: record["partition"].update(class_counts="many"), "partition: class_counts"),
        (lambda record: record["partition"].update(overlap="some"), "partition: overlap"),
        (lambda record: record["clients"].reverse(), "not numbered from 0"),
        (lambda record: record["final"]["confusion"][3].pop(), "not square"),
    ],
)
def test_a_record_that_contradicts_itself_is_damaged(
    change: Callable, said: str, copied: Callable, rewrite_record: Callable
) -> None:
    file = copied("run") / "record.json"
    rewrite_record(file, change)
    found = explain_path(file.parent)
    assert found.runs == () and said in found.problems[0].reason


def test_numbers_that_are_not_finite_are_no_numbers(copied: Callable) -> None:
    folder = copied("run")
    rows = [json.loads(line) for line in (folder / "telemetry.jsonl").read_text().splitlines()]
    for odd in (float("nan"), float("inf"), 0.0, -1.0, 1e300):
        lines = [
            json.dumps({key: value if key in ("client", "epoch") else odd for key, value in row.items()})
            for row in rows
        ]
        (folder / "telemetry.jsonl").write_text("\n".join(lines))
        assert all(finding.title for finding in explain(folder))


def test_damaged_lines_of_telemetry_are_counted_and_left_out(copied: Callable, tmp_path: Path) -> None:
    file = copied("run") / "telemetry.jsonl"
    lines = file.read_text().splitlines()
    odd = [lines[0][:30], "[1]", '{"client": "a", "epoch": 1}', '{"client": 0, "epoch": 1, "base_loss": "x"}', "\xff"]
    file.write_text("\n".join([*lines, *odd]), encoding="latin-1")
    assert reasons(tmp_path / "runs") == {
        "run/telemetry.jsonl": f"5 of {len(lines) + 5} lines are damaged and left out"
    }
    assert {finding.name for finding in explain(file.parent)} == {"equal_terms", "dead_term"}


def test_a_run_without_telemetry_is_explained_from_its_record(copied: Callable) -> None:
    folder = copied("run")
    (folder / "telemetry.jsonl").unlink()
    found = explain_path(folder)
    assert found.runs[0].findings == () and "left out" in found.problems[0].reason


def test_a_damaged_upload_silences_only_what_reads_it(copied: Callable, healthy: Path) -> None:
    folder = copied("run")
    for client in range(3):
        (folder / "clients" / str(client) / "upload.safetensors").write_bytes(b"no upload")
    assert {finding.name for finding in explain(folder)} == {"equal_terms", "dead_term"}


def test_a_patch_release_is_read(copied: Callable) -> None:
    file = copied("run") / "record.json"
    record = json.loads(file.read_text())
    major, minor, *_ = record["versions"]["fedshot"].split(".")
    record["versions"]["fedshot"] = f"{major}.{minor}.99"
    file.write_text(json.dumps(record))
    assert len(explain_path(file.parent).runs) == 1


def test_a_rule_whose_options_have_changed_since_leaves_the_others_explained(
    copied: Callable, rewrite_record: Callable, tmp_path: Path
) -> None:
    copied("run")
    rewrite_record(copied("old") / "record.json", lambda record: record["final"].update(fusion="routed:shrink=0.01"))
    found = explain_path(tmp_path / "runs")
    assert [run.name for run in found.runs] == ["run"]
    assert "option of fusion rule 'routed' 'shrink'" in reasons(tmp_path / "runs")["old"]


def test_a_variant_whose_file_is_gone_is_explained_and_not_run(copied: Callable, rewrite_record: Callable) -> None:
    file = copied("run") / "record.json"
    rewrite_record(file, lambda record: record["spec"].update(method="gone.py:mine", options={"strength": 2.0}))
    assert explain_path(file.parent).runs[0].label == "gone.py:mine strength=2.0"


def test_a_folder_without_runs(tmp_path: Path) -> None:
    assert explain(tmp_path) == []
    assert explain_path(tmp_path).problems[0].reason == "an empty folder"


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_what_is_no_folder_is_a_mistake(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="not a folder"):
        explain(tmp_path / name)


@pytest.fixture(scope="module")
def mixed(trained: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory, divided: Callable) -> Path:
    """FAFI on two seeds, and an alignment without effect on one, once as long as FAFI and once longer."""
    folder = tmp_path_factory.mktemp("mixed")
    file = divided((48, range(10)), (40, range(10)))
    common = {"clients": 2, "partition_file": file, "batch_size": 16}
    made = {
        "fafi-1": trained("fafi", epochs=5, seed=1, **common),
        "fafi-2": trained("fafi", epochs=5, seed=2, **common),
        "etf-1": trained("etf", {"weight": 0.001}, epochs=6, seed=1, **common),
        "etf-3": trained("etf", {"weight": 0.002}, epochs=5, seed=1, **common),
    }
    for name, run in made.items():
        shutil.copytree(run, folder / name, ignore=shutil.ignore_patterns("*.safetensors"))
    return folder


def test_too_few_seeds_for_a_comparison(mixed: Path) -> None:
    (finding,) = [f for f in explain_path(mixed).across if f.name == "too_few_seeds"]
    found = {fact.name: fact.value for fact in finding.facts}
    assert found == {"seeds of fafi": 2, "seeds of etf weight=0.001": 1, "seeds of etf weight=0.002": 1}
    compared = finding.remedies[0].partition("`fedshot compare ")[2].partition("`")[0].split()
    assert compared[:3] == ["etf:weight=0.001", "etf:weight=0.002", "fafi"]
    assert compared[3:5] == ["--clients", "2"]
    assert "--batch-size 16 --epochs 6 --seeds 1,2,3" in " ".join(compared), "the epochs that one of them had"


def test_a_copy_of_a_run_is_not_another_seed(mixed: Path, tmp_path: Path) -> None:
    for name, run in (("a", "fafi-1"), ("b", "fafi-1"), ("c", "fafi-2")):
        shutil.copytree(mixed / run, tmp_path / name)
    assert [run.name for run in explain_path(tmp_path).runs] == ["a", "c"]
    assert reasons(tmp_path) == {"b": "the same run as a"}


def test_a_contrast_is_made_by_runs_under_equal_settings_alone(mixed: Path, tmp_path: Path) -> None:
    for name in ("fafi-1", "fafi-2", "etf-1", "etf-3"):  # etf has no second seed, and six epochs once
        shutil.copytree(mixed / name, tmp_path / name)
    contrasts = [f for f in explain_path(tmp_path).across if f.name == "contrast"]
    (finding,) = [f for f in contrasts if f.title.startswith("alignment_without_effect")]
    assert {fact.name for fact in finding.facts} == {"etf weight=0.002", "fafi"}
    assert all(" of 1 runs" in str(fact.value) for fact in finding.facts)


def test_methods_that_do_not_share_their_epochs(mixed: Path) -> None:
    (finding,) = [f for f in explain_path(mixed).across if f.name == "not_comparable"]
    assert finding.severity == "severe" and "the epochs" in finding.title
    assert [fact.name for fact in finding.facts] == ["epochs"]
    assert "here that of " in finding.remedies[0] and "--epochs" in finding.remedies[0]


def test_one_setting_for_methods_of_other_divisions_is_one_that_some_of_them_had(
    trained: Callable[..., Path], tmp_path: Path
) -> None:
    common = {"clients": 2, "batch_size": 16, "data": "digits:images=200", "alpha": 0.5, "epochs": 1}
    for method, recipe in (("etf", "iid"), ("fafi", "dirichlet")):
        run = trained(method, recipe=recipe, **common)
        shutil.copytree(run, tmp_path / method, ignore=shutil.ignore_patterns("*.safetensors"))
    (finding,) = [f for f in explain_path(tmp_path).across if f.name == "not_comparable"]
    (few,) = [f for f in explain_path(tmp_path).across if f.name == "too_few_seeds"]
    for remedy in (finding.remedies[0], few.remedies[0]):
        assert "fedshot compare etf fafi --data digits:images=200" in remedy
        assert "--recipe iid" in remedy and "--alpha" not in remedy


def test_methods_that_ran_by_other_rules_than_their_own_are_said_to(
    trained: Callable[..., Path], tmp_path: Path
) -> None:
    common = {"clients": 2, "batch_size": 16, "data": "digits:images=200", "epochs": 1}
    for method, rule in (("etf", "logits"), ("fafi", "probabilities")):
        run = trained(method, fusion=rule, **common)
        shutil.copytree(run, tmp_path / method, ignore=shutil.ignore_patterns("*.safetensors"))
    (finding,) = [f for f in explain_path(tmp_path).across if f.name == "too_few_seeds"]
    assert "--fusion" not in finding.remedies[0]
    assert finding.remedies[0].endswith("(each by its own rule; `fedshot fuse` then tries the others)")


def test_a_finding_of_one_method_alone_is_a_contrast(mixed: Path) -> None:
    contrasts = [f for f in explain_path(mixed).across if f.name == "contrast"]
    (finding,) = [f for f in contrasts if f.title.startswith("alignment_without_effect")]
    assert "in every run of etf weight=0.002 and in none of fafi, on 1 seed" in finding.title


def test_rules_on_the_same_uploads_are_told_apart(mixed: Path, tmp_path: Path, claiming: Callable[..., Run]) -> None:
    for name in ("one", "two"):
        shutil.copytree(mixed / "fafi-1", tmp_path / name)
    for name, rule, error in (("one", "features", 0.0), ("two", "class_weighted", 0.9)):
        told = claiming(load(tmp_path / name)[0], fusion=rule, calibration_error=error).record
        (tmp_path / name / "record.json").write_text(told.sealed().model_dump_json())
    (finding,) = [f for f in explain_path(tmp_path).across if f.name == "contrast" and f.title.startswith("miscal")]
    assert "in every run of fafi by class_weighted and in none of fafi by features" in finding.title


def test_a_contrast_needs_equal_settings(mixed: Path, tmp_path: Path) -> None:
    for name in ("fafi-1", "etf-1"):  # five epochs and six
        shutil.copytree(mixed / name, tmp_path / name)
    assert "contrast" not in [finding.name for finding in explain_path(tmp_path).across]


def test_methods_of_one_seed_with_other_partitions(healthy: Path, trained: Callable[..., Path], tmp_path: Path) -> None:
    other = trained("fedavg", clients=3, alpha=5.0, epochs=1, data="digits:images=100")
    for name, run in (("one", healthy), ("two", other)):
        shutil.copytree(run, tmp_path / name, ignore=shutil.ignore_patterns("*.safetensors"))
    (finding,) = [f for f in explain_path(tmp_path).across if f.name == "not_comparable"]
    assert "the partition at seed 1" in finding.title and finding.severity == "severe"


def test_one_run_alone_is_not_compared(healthy: Path) -> None:
    assert explain_path(healthy).across == ()


def test_findings_come_the_worst_first(mixed: Path) -> None:
    order = [SEVERITIES.index(finding.severity) for finding in explain(mixed)]
    assert order == sorted(order) and len(order) > 5
