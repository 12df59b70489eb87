import io
import subprocess
import sys

import pytest
from rich.console import Console

from fedshot.errors import UserError
from fedshot.report import as_markdown, as_table, comparison


def printed(renderable, width=80):
    console = Console(width=width, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()


def test_soundness_6_the_last_evaluation_point_is_reported_and_never_the_best(make_record):
    (row,) = comparison({"fafi": [make_record(seed=s, curve=(0.5, 0.95, 0.7)) for s in (1, 2, 3)]}).rows
    assert row.accuracy.mean == 0.7


def test_soundness_11_a_study_reports_mean_deviation_and_paired_differences(runs):
    text = printed(as_table(comparison(runs)))
    assert "70.0 ± 10.0" in text
    assert "72.0 ± 9.5" in text
    assert "+2.0 [−0.5, +4.5]" in text
    assert "reference" in text
    assert "3 seeds (1, 2, 3)" in text


def test_soundness_11_one_seed_is_called_one_seed_in_every_table(make_record):
    found = comparison({"fafi": [make_record()], "etf": [make_record("etf", curve=(0.5, 0.85))]})
    for text in (printed(as_table(found)), as_markdown(found)):
        assert "80.0 (1 seed)" in text
        assert "+5.0 (1 seed)" in text
        assert "±" not in text.split("Accuracy on")[0], "one seed has no deviation"
        assert "run at least 3" in text


def test_the_first_method_is_the_reference_even_when_another_is_best(runs):
    found = comparison(runs)
    assert found.reference == "fafi"
    assert found.best.label == "V14"
    assert found.rows[0].difference is None
    assert found.rows[1].difference.mean == pytest.approx(0.02)
    assert comparison(dict(reversed(runs.items()))).rows[1].difference.mean == pytest.approx(-0.02)


def test_methods_may_have_different_seeds(runs, make_record):
    found = comparison({**runs, "etf": [make_record("etf", 2, (0.5, 0.65)), make_record("etf", 8, (0.5, 0.1))]})
    assert found.rows[2].accuracy.n == 2
    assert found.rows[2].difference.n == 1
    assert found.rows[2].difference.mean == pytest.approx(0.05)
    assert any("seeds differ" in warning and "etf 2 seeds (2, 8)" in warning for warning in found.warnings)
    assert "seed" not in found.setting
    assert found.best is None, "an easy seed would win"


def test_soundness_10_other_partitions_are_not_paired(runs, make_record):
    found = comparison({**runs, "etf": [make_record("etf", s, fingerprint="f" * 64) for s in (1, 2)]})
    assert found.rows[2].difference.n == 0
    assert any("seed 1" in warning and "same data" in warning for warning in found.warnings)


def test_settings_that_differ_are_warned_about_and_left_out_of_the_caption(runs, make_record):
    longer = [make_record("etf", seed, (0.1, 0.2, 0.3)) for seed in (1, 2, 3)]
    found = comparison({**runs, "etf": longer})
    told = "fafi, V14 2 local epochs; etf 3 local epochs"
    assert found.warnings == (f"Not all runs share the local epochs: {told}.",)
    assert "epoch" not in found.setting
    many = {f"etf:weight={number}": runs["fafi"] for number in range(6)}
    told = "etf 3 local epochs; the others 2 local epochs"
    assert comparison({**many, "etf": longer}).warnings[0] == f"Not all runs share the local epochs: {told}."
    assert "digits · 2 clients · dirichlet α = 0.05" in found.setting


def test_marks_name_transductive_rules_phases_and_skipped_clients(make_record):
    record = make_record(inductive=False, phases=2, skipped={1: "no samples"})
    plain = comparison({"fafi": [make_record()]})
    marked = comparison({"fafi": [record]})
    assert plain.rows[0].marks == ()
    for text in (printed(as_table(marked), 120), as_markdown(marked)):
        for mark in ("transductive", "2 phases", "1 of 2 clients skipped"):
            assert mark in text


def test_upload_is_the_mean_of_the_clients_that_sent_one(make_record):
    assert comparison({"fafi": [make_record()]}).rows[0].upload_bytes == 1_500_000
    assert comparison({"fafi": [make_record(skipped={0: "no samples"})]}).rows[0].upload_bytes == 2_000_000
    nobody = comparison({"fafi": [make_record(skipped={0: "no samples", 1: "no samples"})]})
    assert nobody.rows[0].upload_bytes == 0


def test_the_table_fits_into_80_columns(runs):
    text = printed(as_table(comparison(runs)))
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    line = next(line for line in text.splitlines() if "V14" in line)
    assert line.split() == ["V14", "72.0", "±", "9.5", "+2.0", "[−0.5,", "+4.5]", "1.50", "MB", "3.0", "s", "0.25", "s"]


def test_a_wide_table_shows_more(runs):
    assert "worst class" not in printed(as_table(comparison(runs), 80))
    assert "worst class" in printed(as_table(comparison(runs), 120), 120)


def test_markdown_is_a_table_whose_rows_have_as_many_cells_as_its_head(runs):
    text = as_markdown(comparison({**runs, "a|b": runs["fafi"]}))
    lines = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 5
    assert len({line.count("|") for line in lines}) == 1


def test_mistakes_are_said_in_one_sentence(make_record):
    with pytest.raises(UserError, match="nothing to compare"):
        comparison({})
    with pytest.raises(UserError, match="'etf' has no finished run"):
        comparison({"etf": []})
    with pytest.raises(UserError, match="'fafi' has two runs of seed 1"):
        comparison({"fafi": [make_record(), make_record()]})


def test_the_command_line_pays_for_nothing_heavy():
    heavy = "('torch', 'scipy', 'matplotlib', 'jinja2', 'numpy')"
    code = f"import sys, fedshot.report; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
