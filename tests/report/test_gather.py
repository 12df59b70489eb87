import json

import pytest

from fedshot.errors import UserError
from fedshot.report.gather import gather
from fedshot.report.telemetry import read_telemetry, room_for, series


@pytest.fixture
def write(tmp_path):
    """Writes a record to the folder of a run."""

    def into(name, record):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(record.model_dump_json())
        return folder

    return into


def test_runs_are_found_at_any_depth_and_seeds_of_a_method_belong_together(write, make_record, tmp_path):
    write("a/fafi/seed-2", make_record("fafi", 2, (0.5, 0.6)))
    write("a/fafi/seed-1", make_record("fafi", 1, (0.5, 0.7)))
    write("b/deep/er", make_record("etf", 1, (0.5, 0.9)))
    write("other", make_record("fafi", 1, data="svhn"))
    found = gather([tmp_path / "runs"])
    assert [list(task.runs) for task in found.tasks] == [["etf", "fafi"], ["fafi"]], "the highest mean first"
    assert [record.spec.seed for record in found.tasks[0].runs["fafi"]] == [1, 2]
    assert [folder.name for folder in found.tasks[0].folders["fafi"]] == ["seed-1", "seed-2"]
    assert found.tasks[1].name == "svhn · 2 clients · dirichlet α = 0.05"
    assert found.problems == ()


def test_one_method_with_two_options_is_two_rows_named_by_what_differs(write, make_record, tmp_path):
    write("one", make_record("etf", options={"weight": 1.0, "anneal": "linear"}))
    write("two", make_record("etf", options={"weight": 5.0, "anneal": "linear"}))
    write("three", make_record("etf", options={"weight": 5.0, "anneal": "linear"}, lr=0.1))
    write("four", make_record("aurora", options={"hinge.cap": 7.0}))
    assert {*gather([tmp_path]).tasks[0].runs} == {
        "etf:weight=1",
        "etf",
        "etf (lr=0.1)",  # the other has the usual rate
        "aurora:hinge.cap=7",  # an option that is not usual is told, whoever else is there
    }
    assert gather([tmp_path], baseline="etf:weight=1").tasks


def test_the_plain_name_is_that_of_the_run_that_changed_nothing(write, make_record, tmp_path):
    brought = {"lr": 0.1, "schedule": "cosine", "weight_decay": 5e-4, "upload_precision": "bf16"}
    brought |= {"validation": 0.1, "validation_most": 256, "fusion": "routed"}
    write("plain", make_record("recommended", **brought))
    write("changed", make_record("recommended", **(brought | {"lr": 0.05, "schedule": "constant"})))
    found = gather([tmp_path], baseline="recommended")
    assert list(found.tasks[0].runs) == ["recommended", "recommended (lr=0.05, schedule=constant)"]
    assert found.tasks[0].runs["recommended"][0].spec.lr == 0.1


def test_no_run_is_lost_under_the_label_of_another(write, make_record, tmp_path):
    """An option that the method did not have yet, and two files of one name and content."""
    write("earlier", make_record("etf", options={"weight": 5.0}))
    write("today", make_record("etf", options={"weight": 5.0, "anneal": "linear"}))
    for folder in "ab":
        method = f"{folder}/mine.py"
        write(folder, make_record(method, files={method: "0" * 64}))
    found = gather([tmp_path])
    assert {label for task in found.tasks for label in task.runs} == {
        "etf",
        "etf (anneal=linear)",
        "mine.py (method=a/mine.py)",
        "mine.py (method=b/mine.py)",
    }
    assert sum(len(runs) for task in found.tasks for runs in task.runs.values()) == len(found.records) == 4


def test_the_baseline_comes_first_and_must_be_there(write, make_record, tmp_path):
    write("fafi", make_record("fafi", 1, (0.5, 0.6)))
    write("etf", make_record("etf", 1, (0.5, 0.9)))
    assert list(gather([tmp_path], "fafi").tasks[0].runs) == ["fafi", "etf"]
    with pytest.raises(UserError, match="unknown baseline 'faffi': did you mean 'fafi'"):
        gather([tmp_path], "faffi")


def test_what_cannot_be_reported_is_named_and_the_rest_goes_on(write, make_record, tmp_path):
    whole = write("whole", make_record())
    (write("cut", make_record("etf")) / "record.json").write_text('{"spec": ')
    old = make_record("etf").model_copy(update={"versions": {"fedshot": "0.0.1"}})
    write("old", old)
    lacking = json.loads(make_record("etf", 3).model_dump_json())
    del lacking["final"]
    (write("lacking", make_record("etf")) / "record.json").write_text(json.dumps(lacking))
    write("twice", make_record())
    (tmp_path / "empty").mkdir()
    found = gather([whole, tmp_path / "runs", tmp_path / "empty"])
    assert [list(task.runs) for task in found.tasks] == [["fafi"]]
    told = "\n".join(found.problems)
    assert len(found.problems) == 5
    for said in (
        "cut/record.json is damaged",
        "old/record.json was made by fedshot 0.0.1",
        "lacking/record.json is damaged: final",
        "twice repeats the spec of",
        "empty holds no finished run",
    ):
        assert said in told


def test_a_folder_that_is_not_there_is_a_mistake(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        gather([tmp_path / "gone"])


def test_a_link_that_leads_out_is_not_followed_where_that_matters(write, make_record, tmp_path):
    outside = write("../outside", make_record())
    inside = tmp_path / "runs" / "inside"
    inside.mkdir(parents=True)
    (inside / "record.json").symlink_to(outside / "record.json")
    assert gather([tmp_path / "runs"]).tasks
    found = gather([tmp_path / "runs"], confined=True)
    assert not found.tasks and "leads out of the folder" in found.problems[0]


def test_telemetry_becomes_columns_of_the_largest_clients(tmp_path):
    rows = [{"client": k, "epoch": e, "base_loss": e / 3, "base_scale": 1.0} for k in range(9) for e in range(1, 10)]
    told = series(rows, {k: k for k in range(9)}, (2, 3))
    assert told["clients"] == [7, 8] and told["epochs"] == [[1, 5, 9]] * 2
    assert told["columns"] == {"base_loss": [[0.333, 1.67, 3]] * 2, "base_scale": 1}
    assert told["of"] == [9, 9]
    assert series([], {}, (2, 3)) is None


def test_few_runs_keep_all_of_their_telemetry():
    rows = [{"client": k, "epoch": e, "base_loss": 1.0} for k in range(5) for e in range(50)]
    assert room_for([rows] * 3)[1] >= 50
    assert room_for([])[0] == 12


@pytest.mark.parametrize("line", ["x", "[]", '{"epoch": 1}', '{"client": 0, "epoch": 1, "base_loss": "low"}'])
def test_damaged_telemetry_is_refused(line, tmp_path):
    (tmp_path / "telemetry.jsonl").write_text(f'{{"client": 0, "epoch": 1, "base_loss": null}}\n{line}\n')
    with pytest.raises(UserError, match=r"telemetry.jsonl is damaged in line 2"):
        read_telemetry(tmp_path)


def test_a_file_that_a_record_names_is_not_run(write, make_record, tmp_path):
    planted = tmp_path / "planted.py"
    planted.write_text("raise SystemExit('this code was run')")
    write("sent", make_record(str(planted), options={"strength": 2.0}))
    assert list(gather([tmp_path]).tasks[0].runs) == ["planted.py:strength=2"]
