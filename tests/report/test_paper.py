import pytest

from fedshot.errors import UserError
from fedshot.report.gather import TaskRuns
from fedshot.report.paper import parse_formats, write_figures
from fedshot.report.style import INK

WEIGHTS = '{"client": 0, "epoch": 1, "lambda_raw": 2.0, "lambda_effective": 2.0, "lambda_equilibrium": 1.0}\n'


def test_every_figure_in_every_format_and_the_same_bytes_again(runs, tmp_path):
    folders = {label: [tmp_path / label / str(r.spec.seed) for r in records] for label, records in runs.items()}
    folders["V14"][0].mkdir(parents=True)
    (folders["V14"][0] / "telemetry.jsonl").write_text(WEIGHTS)
    folders["V14"][1].mkdir(parents=True)
    (folders["V14"][1] / "telemetry.jsonl").write_text("damaged")
    written = write_figures([TaskRuns(runs, folders)], tmp_path / "paper", ["pdf", "svg"])
    stems = ["leaderboard", "curves", *(f"partition-seed{n}-000000" for n in (1, 2, 3)), "lambda-V14-seed1"]
    assert [file.name for file in written] == [f"{stem}.{kind}" for stem in stems for kind in ("pdf", "svg")]
    assert written[0].read_bytes().startswith(b"%PDF")
    assert b"<svg" in written[1].read_bytes() and INK.encode() not in written[1].read_bytes()
    again = write_figures([TaskRuns(runs)], tmp_path / "again", ["pdf", "svg"])
    assert [file.read_bytes() for file in again[:4]] == [file.read_bytes() for file in written[:4]]


def test_several_tasks_have_a_folder_each(make_record, tmp_path):
    tasks = [TaskRuns({"fafi": [make_record(curve=(0.5,), data=data)]}) for data in ("digits", "svhn")]
    written = write_figures(tasks, tmp_path, ["svg"])
    assert {file.parent.name for file in written} == {
        "digits-2-clients-dirichlet-alpha-0.05",
        "svhn-2-clients-dirichlet-alpha-0.05",
    }
    assert not any(file.name.startswith("curves") for file in written), "one evaluation point is no curve"


def test_formats_are_checked():
    with pytest.raises(UserError, match="unknown format 'pfd': did you mean 'pdf'"):
        parse_formats("svg,pfd")
    with pytest.raises(UserError, match="names no format"):
        parse_formats(" , ")
