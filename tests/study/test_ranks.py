"""Ranks, families of tests, and the diagram, against published figures and naive twins."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedshot.errors import UserError
from fedshot.record import HeldOut
from fedshot.study import Results, load_results
from fedshot.study.diagram import rank_diagram, save_diagram
from fedshot.study.ranks import differences, rank
from fedshot.study.statistics import compare_ranks, critical_difference, holm
from fedshot.study.tables import difference_sheet

# Demšar 2006, table 6: AUC on 14 data sets. Two of the last but one are printed as equal and ranked 2 and 3.
DEMSAR = {
    "C4.5": [0.763, 0.599, 0.954, 0.628, 0.882, 0.936, 0.661, 0.583, 0.775, 1.0, 0.940, 0.619, 0.972, 0.957],
    "C4.5+m": [0.768, 0.591, 0.971, 0.661, 0.888, 0.931, 0.668, 0.583, 0.838, 1.0, 0.962, 0.666, 0.981, 0.978],
    "C4.5+cf": [0.771, 0.590, 0.968, 0.654, 0.886, 0.916, 0.609, 0.563, 0.866, 1.0, 0.965, 0.614, 0.97501, 0.946],
    "C4.5+m+cf": [0.798, 0.569, 0.967, 0.657, 0.898, 0.931, 0.685, 0.625, 0.875, 1.0, 0.962, 0.669, 0.975, 0.970],
}


def test_the_published_example_comes_out() -> None:
    found = compare_ranks(DEMSAR)
    assert [round(rank, 3) for rank in found.average.values()] == [3.143, 2.0, 2.893, 1.964]
    assert (round(found.chi_square, 2), round(found.f, 2)) == (9.28, 3.69)
    assert found.p == pytest.approx(stats.f.sf(found.f, 3, 39))
    assert round(found.critical_difference, 2) == 1.25


def test_critical_values_are_those_of_the_published_table() -> None:
    """Demšar 2006, table 5 (a)."""
    published = {2: 1.960, 3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 7: 2.949, 8: 3.031, 9: 3.102, 10: 3.164}
    for k, q in published.items():
        assert critical_difference(k, 6) / math.sqrt(k * (k + 1) / 36) == pytest.approx(q, abs=1e-3)


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=2, max_size=6))
def test_ranks_are_those_of_counting(cells: list[list[int]]) -> None:
    values = {name: [float(cell[place]) for cell in cells] for place, name in enumerate("abc")}
    found = compare_ranks(values, higher_is_better=False)
    for place, name in enumerate("abc"):
        of_cells = [
            1 + sum(x < cell[place] for x in cell) + (sum(x == cell[place] for x in cell) - 1) / 2 for cell in cells
        ]
        assert found.average[name] == pytest.approx(sum(of_cells) / len(cells))
    turned = compare_ranks({name: [-x for x in column] for name, column in values.items()})
    assert turned.average == pytest.approx(found.average)


def test_without_ties_the_test_is_scipys() -> None:
    columns = [[0.1, 0.5, 0.9, 0.2], [0.2, 0.4, 0.8, 0.3], [0.3, 0.6, 0.7, 0.1]]
    found = compare_ranks(dict(zip("abc", columns, strict=True)))
    assert found.chi_square == pytest.approx(stats.friedmanchisquare(*columns).statistic)


def test_the_same_order_everywhere_is_as_likely_as_counting_says() -> None:
    found = compare_ranks({"a": [3, 3, 3], "b": [2, 2, 2]})
    assert found.average == {"a": 1.0, "b": 2.0} and found.f == math.inf and found.p == 2 / 2**3
    found = compare_ranks({"a": [3, 3, 3, 3], "b": [2, 2, 2, 2], "c": [1, 1, 1, 1]})
    assert found.p == pytest.approx(6 / 6**4)


@given(st.lists(st.floats(0, 1), max_size=7))
def test_holm_rejects_what_the_step_down_procedure_rejects(ps: list[float]) -> None:
    """Naive: go up from the smallest p and reject while p(i) <= level / (m - i)."""
    corrected = holm(ps)
    for level in (0.01, 0.05, 0.3):
        rejected = set()
        for step, place in enumerate(sorted(range(len(ps)), key=lambda place: ps[place])):
            if ps[place] * (len(ps) - step) > level:
                break
            rejected.add(place)
        assert {place for place, p in enumerate(corrected) if p <= level} == rejected


@pytest.fixture
def ranked(write_run, tmp_path: Path) -> Path:
    """Three methods in the same order in four cells, a few seeds each."""
    for alpha in (0.1, 0.3, 0.5, 1.0):
        for seed in (1, 2, 3):
            for place, method in enumerate(("fedavg", "fafi", "aurora")):
                accuracy = 0.3 + alpha / 10 + 0.1 * place + 0.003 * seed * (place + 1)
                write_run(method, accuracy, alpha=alpha, seed=seed, fusion=("average", "features", "features")[place])
    return tmp_path / "runs"


def test_methods_are_ranked_over_the_cells_of_their_runs(ranked: Path) -> None:
    found = rank(load_results(ranked))
    assert (found.average, found.n) == ({"aurora": 1.0, "fafi": 2.0, "fedavg": 3.0}, 4)
    assert rank(load_results(ranked), "final.nll").average == {"aurora": 2.0, "fafi": 2.0, "fedavg": 2.0}


def test_ranks_say_what_is_missing(ranked: Path, write_run) -> None:
    results = load_results(ranked)
    for query in ("method=fafi", "alpha<0.5"):
        with pytest.raises(UserError, match=r"ranks need at least 2 methods .* 3 common cells or more"):
            rank(results.where(query))
    with pytest.raises(UserError, match=r"here are 3 methods \(aurora, fafi, fedavg\) and 2 common of 4 cells"):
        rank(Results(tuple(row for row in results.rows if row["alpha"] > 0.4 or row["method"] == "fafi")))
    with pytest.raises(UserError, match=r"unknown figure to rank by 'cost\.upload_bytes'"):
        rank(results, "cost.upload_bytes")
    write_run("aurora", 0.9, {"inductive": False}, alpha=0.1, seed=4)
    with pytest.raises(UserError, match=r"add --where final\.inductive=true"):
        rank(load_results(ranked))


def test_differences_are_paired_and_corrected_as_a_family(ranked: Path) -> None:
    found = differences(load_results(ranked), "fafi")
    assert len(found) == 8 and {one.variant for one in found} == {"aurora", "fedavg"}
    ps = [one.paired.p for one in found]
    assert all(p is not None for p in ps)
    assert [one.corrected for one in found] == holm([p or 0 for p in ps])
    first = next(one for one in found if one.variant == "aurora" and one.cell == {"alpha": 0.1})
    assert first.paired.mean == pytest.approx(0.1 + 0.003 * 2) and first.paired.n == 3
    assert "in the family of the 8 tests shown" in " ".join(difference_sheet(found, "fafi", "final.accuracy").notes)
    with pytest.raises(UserError, match="unknown method among these results 'faffi': did you mean 'fafi'"):
        differences(load_results(ranked), "faffi")


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_the_diagram_is_drawn(kind: str, tmp_path: Path) -> None:
    save_diagram(compare_ranks(DEMSAR), tmp_path / f"new/ranks.{kind}")
    assert (tmp_path / f"new/ranks.{kind}").stat().st_size > 1000
    if kind == "svg":
        text = (tmp_path / "new/ranks.svg").read_text()
        assert all(said in text for said in ("C4.5+m+cf  1.96", "3.14  C4.5", "critical difference 1.25", "14 cells"))


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"\.svg, \.pdf, \.png"):
        save_diagram(compare_ranks(DEMSAR), tmp_path / "ranks.gif")


def test_bars_join_methods_that_are_not_told_apart() -> None:
    """Demšar's figure 1: no two of the four differ by 1.25."""
    (axes,) = rank_diagram(compare_ranks(DEMSAR)).axes
    bars = [line.get_xdata() for line in axes.lines if line.get_linewidth() > 3]
    assert [[round(float(x), 2) for x in bar] for bar in bars] == [[1.93, 3.17]]


def test_figures_that_only_some_records_have(write_run: Callable[..., Path], tmp_path: Path) -> None:
    """Records of before say nothing about held-out images: they are left out, and never taken for a number."""
    for alpha in (0.1, 0.3, 0.5):
        for seed in (1, 2):
            for method, accuracy in (("fafi", 0.6), ("etf", 0.7)):
                held = HeldOut(images=20, accuracy=accuracy, balanced_accuracy=accuracy, nll=1.0)
                write_run(method, 0.5, held_out=held if (method, seed) != ("fafi", 1) else None, alpha=alpha, seed=seed)
    found = load_results(tmp_path / "runs")
    several = differences(found, "fafi", "held_out.accuracy")
    assert [(one.paired.n, round(one.paired.mean or 0, 6)) for one in several] == 3 * [(1, 0.1)]
    assert rank(found, "held_out.accuracy").average == {"fafi": 2.0, "etf": 1.0}
    assert found.column("accuracy") == "final.accuracy", "the short name is that of the figure of the run"
    none = found.where("seed=1,method=fafi")
    for asked in (lambda: differences(none, "fafi", "held_out.nll"), lambda: none.pivot(value="held_out.accuracy")):
        with pytest.raises(UserError, match=r"no run has held_out.*train with --validation 0.1"):
            asked()
