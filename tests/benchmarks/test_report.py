"""What is kept of a bench, and what is said about it."""

import io
import json
import os

import pytest
import torch
from rich.console import Console

from fedshot.benchmarks.cases import Case, cases_on_cpu, cases_on_gpu, choose
from fedshot.benchmarks.machine import busy_cores, flops_per_image, machine_name, matrix_rate
from fedshot.benchmarks.report import BenchReport, Row, ScalingRow, append_history, read_history, slower_cases
from fedshot.benchmarks.show import case_table, headline, noise, remarks, save_figure, scaling_figure, scaling_table
from fedshot.errors import UserError
from fedshot.prepare import prepare


def row(name, speed=None, **changes):
    known = {"data": "digits", "encoder": "cnn", "batch_size": 32, "clients": 5, "side_by_side": 1, "fused": False}
    loop = {"published": "published", "eager": "eager"}.get(name.partition("/")[2], "fedshot")
    figures = {"images_per_second": speed, "flops_per_image": 1000, "peak_memory_bytes": 5 * 10**8} if speed else {}
    return Row(**{"name": name, "loop": loop, **known, **figures, **changes})


def report(*rows, **changes):
    about = {"date": "2026-01-01T00:00:00+00:00", "machine": "M", "device": "cpu", "quick": False, "commit": None}
    return BenchReport(**{**about, "versions": {"torch": "2"}, "rows": rows, **changes})


def printed(table):
    console = Console(width=100, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


def test_rows_relate_to_the_published_loop_and_to_the_best_matrix_rate():
    found = report().with_row(row("a/published", 10.0), 1e6).with_row(row("a/workers-1", 40.0), 2e6)
    found = found.with_row(row("b/workers-1", 40.0), 1e6).with_row(row("a/workers-2", error="out of memory"), 1e6)
    assert [r.times_published for r in found.rows] == [1.0, 4.0, None, None]
    assert found.matrix_flops_per_second == 2e6
    assert [r.mfu for r in found.rows] == [0.005, 0.02, 0.02, None]


def test_the_file_has_a_stable_form(tmp_path):
    found = report(row("a/eager", 3.0), scaling=(ScalingRow(clients=5, images=10, epochs=1),))
    found.save(tmp_path / "deep" / "b.json")
    plain = json.loads((tmp_path / "deep" / "b.json").read_text())
    assert {"date", "machine", "device", "quick", "versions", "commit", "busy_cores", "rows", "scaling"} <= plain.keys()
    assert {"name", "loop", "data", "images_per_second", "times_published", "mfu", "error"} <= plain["rows"][0].keys()
    assert BenchReport.model_validate(plain) == found


def test_history_grows_by_a_line_and_survives_damage(tmp_path):
    path = tmp_path / "runs" / "history.jsonl"
    assert read_history(path) == []
    append_history(path, report(row("a/eager", 3.0)))
    with path.open("a") as file:
        file.write('{"date": \n')
    append_history(path, report(row("a/eager", 4.0)))
    assert len(path.read_text().splitlines()) == 3
    assert [r.rows[0].images_per_second for r in read_history(path)] == [3.0, 4.0]


def test_only_the_last_measurement_of_the_same_case_machine_and_device_counts():
    now = report(row("a/eager", 70.0), row("a/workers-1", 85.0), row("a/workers-2", error="x"), row("new/eager", 1.0))
    same = [row("a/eager", 100.0), row("a/workers-1", 100.0), row("a/workers-2", 100.0)]
    assert slower_cases(now, []) == []
    (said,) = slower_cases(now, [report(*same)])
    assert said == "a/eager: 70 images/s, 30 % slower than 100 on 2026-01-01T00:00:00+00:00"
    assert slower_cases(now, [report(*same), report(row("a/eager", 71.0))]) == []
    assert len(slower_cases(now, [report(*same), report(row("a/eager", error="x"))])) == 1
    for other in ({"machine": "N"}, {"device": "cuda"}, {"quick": True}):
        assert slower_cases(now, [report(*same, **other)]) == []
    assert slower_cases(now, [report(row("a/eager", 100.0, data="cifar10:images=5000"))]) == []


def test_the_table_has_a_line_for_every_case():
    rows = report().with_row(row("a/published", 1234.0, note="by parts"), 1e9)
    rows = rows.with_row(row("a/workers-2", 4936.0, startup_seconds=1.5, seconds_per_client_epoch=0.25), 1e9)
    rows = rows.with_row(row("a/lanes-5", error="out of memory"), 1e9).rows
    lines = printed(case_table(rows)).splitlines()
    assert [line.split()[0] for line in lines] == ["case", "a/published", "a/workers-2", "a/lanes-5"]
    assert lines[2].split() == ["a/workers-2", "4,936", "4", "0.5%", "0.25", "s", "1.5", "s", "500", "MB"]
    assert lines[3].split() == ["a/lanes-5", "failed", *["–"] * 5]
    said = remarks(rows)
    assert said[0] == "a: digits, cnn, batches of 32, 5 alike clients"
    assert said[1:] == ["a/published: by parts", "a/lanes-5: out of memory"]
    assert headline(report(matrix_flops_per_second=1.5e11)) == "M, 0.15 TFLOP/s in float32 matrix products"
    assert "1.9 cores busy" in noise(1.9) and "busy" not in noise(0.1) + noise(None)


def test_the_scaling_is_a_table_and_a_figure(tmp_path):
    points = [(5, 250), (5, 500), (5, 1000), (20, 1000), (100, 1000)]
    figures = {"seconds_per_million_views": 12.0, "training_memory_bytes": 4 * 10**8, "whole_memory_bytes": 10**9}
    rows = [ScalingRow(clients=k, images=n, epochs=2, **figures) for k, n in points]
    rows.append(ScalingRow(clients=1000, images=1000, epochs=2, error="out of memory"))
    lines = printed(scaling_table(rows)).splitlines()
    assert len(lines) == 7 and "12.0" in lines[1] and "out of memory" in lines[6]
    panels = scaling_figure(rows).axes
    assert [list(axes.lines[0].get_xdata()) for axes in panels[:2]] == [[5, 20, 100], [250, 500, 1000]]
    files = save_figure(rows, tmp_path / "b.json")
    assert [file.name for file in files] == ["b.svg", "b.png"] and all(file.stat().st_size > 1000 for file in files)


def test_cases_of_a_gpu():
    cases = cases_on_gpu(quick=False)
    assert len({case.name for case in cases}) == len(cases) == 14
    for workload in ("resnet18-512", "resnet18-64"):
        rows = [case.row for case in cases if case.workload == workload]
        assert rows == ["published", "eager", "lanes-1", "lanes-1-fused", "lanes-2-fused", "lanes-5", "lanes-5-fused"]
    assert all((case.data, case.clients) == ("synthetic", 5) for case in cases)
    assert all(case.fused for case in cases_on_gpu(quick=True) if case.loop == "fedshot")


def test_cases_of_a_cpu_say_which_data_they_took(tmp_path):
    made = cases_on_cpu(quick=False, cores=8, root=tmp_path)
    assert {case.data for case in made} == {"digits", "synthetic:images=5000"}
    assert [case.side_by_side for case in made if case.loop == "fedshot"] == [1, 5, 5, 1, 5, 5]
    assert [case.precision for case in made if case.loop == "fedshot"] == [None, None, "bf16"] * 2
    (tmp_path / "cifar10.npz").write_bytes(b"")
    found = cases_on_cpu(quick=False, cores=1, root=tmp_path)
    assert {case.data for case in found} == {"digits", "cifar10:images=5000"}
    assert [case.name for case in choose(found, ["cifar10", "digits/eager"])] == [
        "digits/eager",
        "cifar10/published",
        "cifar10/eager",
        "cifar10/workers-1",
        "cifar10/workers-1-bf16",
    ]
    with pytest.raises(UserError, match="unknown case 'digts': did you mean 'digits'"):
        choose(found, ["digts"])


def test_the_work_of_a_model_and_the_rate_of_the_machine(case: Case):
    resnet = prepare(Case("r", "eager", "eager", "synthetic:images=20,test=1", "resnet18", 8).spec(1))
    assert flops_per_image(resnet) == pytest.approx(6 * 1.11e9, rel=0.01)  # two views, forward and backward
    assert matrix_rate(torch.device("cpu"), 0.05) > 1e8
    assert "cores" in machine_name(torch.device("cpu"))
    found = busy_cores(seconds=0.05)
    assert found is None or 0 <= found <= (os.cpu_count() or 1)
