import math
import sys
import xml.etree.ElementTree as ET

import pytest

from fedshot.report.exhibits import client_class_exhibit, lambda_exhibit, shares_alone
from fedshot.report.figures import accuracy_bars, accuracy_curves, accuracy_dots, has_lambda, lambda_paths
from fedshot.report.heat import class_map, partition_map
from fedshot.report.style import INK, as_svg


def telemetry(clients, epochs, equilibrium=2.0):
    return [
        {
            "client": k,
            "epoch": e,
            "lambda_raw": 1.0 + e,
            "lambda_effective": 0.5 * (1 + e),
            "lambda_equilibrium": equilibrium,
        }
        for k in range(clients)
        for e in range(1, epochs + 1)
    ]


def lines_of(axes):
    return {line.get_label(): list(line.get_ydata()) for line in axes.get_lines()}


def texts_in(svg):
    return ["".join(e.itertext()).strip() for e in ET.fromstring(svg).iter() if e.tag.endswith("}text")]


def test_every_seed_is_a_dot_and_the_mean_a_bar(runs):
    drawn = [list(line.get_xdata()) for line in accuracy_dots(runs).axes[0].get_lines()]
    assert [pytest.approx(v) for v in ([80, 60, 70], [70, 70], [81, 62, 73], [72, 72])] == drawn[-4:]


def test_a_bar_ends_at_the_mean_with_a_whisker_of_one_deviation(runs):
    axes = accuracy_bars(runs).axes[0]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([70, 72])
    assert list(axes.get_lines()[0].get_xdata()) == pytest.approx([60, 80])


def test_the_curve_is_the_mean_over_seeds_at_the_epochs_that_all_of_them_have(make_record):
    uneven = [make_record(seed=1, curve=(0.2, 0.4)), make_record(seed=2, curve=(0.4, 0.6, 0.9))]
    axes = accuracy_curves({"fafi": uneven}).axes[0]
    assert lines_of(axes)["fafi"] == pytest.approx([30, 50])
    assert len(axes.collections) == 1, "two seeds have a band"
    assert not accuracy_curves({"fafi": uneven[:1]}).axes[0].collections, "one seed has none"


def test_lambdas_of_each_client_are_drawn_as_logged():
    figure = lambda_paths(telemetry(2, 3), {0: 35, 1: 20})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["client 0 · 35 samples", "client 1 · 20 samples"]
    lines = lines_of(figure.axes[1])
    assert lines["raw"] == [2, 3, 4]
    assert lines["effective"] == [1, 1.5, 2]
    assert lines["predicted equilibrium"] == [2, 2, 2]


def test_a_policy_without_equilibrium_leaves_a_gap():
    lines = lines_of(lambda_paths(telemetry(1, 2, equilibrium=None)).axes[0])
    assert all(math.isnan(value) for value in lines["predicted equilibrium"])


def test_lambdas_over_decades_get_a_logarithmic_axis():
    assert lambda_paths(telemetry(1, 3, equilibrium=900.0)).axes[0].get_yscale() == "log"
    assert lambda_paths(telemetry(1, 3, equilibrium=0.0)).axes[0].get_yscale() == "linear"


def test_the_largest_of_many_clients_are_drawn():
    figure = lambda_paths(telemetry(40, 2), {k: k for k in range(40)})
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()]
    assert titles[0].startswith("client 28 ")
    assert len(titles) == 12


def test_a_method_without_alignment_has_no_lambda(make_record):
    rows = [{"client": 0, "epoch": 1, "lambda_effective": 0.0}]
    assert not has_lambda(rows)
    assert lambda_exhibit("fafi", make_record(), rows, 0) is None
    assert lambda_exhibit("fafi", make_record(), [], 0) is None


def test_the_class_map_writes_percents_and_a_dot_for_no_test_images():
    told = texts_in(as_svg(class_map({"client 0": [0.5, None], "fused": [1.0, 0.25]}, divide_after=1), "map", "a map"))
    assert [text for text in told if text in ("50", "·", "100", "25")] == ["50", "·", "100", "25"]
    assert {"client 0", "fused"} <= {*told}


def test_the_partition_map_writes_counts(make_record):
    told = texts_in(as_svg(partition_map(make_record().partition), "partition", "who holds what"))
    assert {"30", "5", "20"} <= {*told}
    assert "client 0 · 35 · 1.00 bit" in told


@pytest.mark.parametrize("clients", [1, 100])
def test_a_large_map_stays_small(clients, make_record):
    record = make_record(class_counts=[[1 + k + c for c in range(100)] for k in range(clients)])
    assert len(as_svg(partition_map(record.partition), "partition", "who")) < 150_000


def test_rows_of_clients_alone_stand_above_the_fusion(make_record):
    record = make_record()
    assert shares_alone(record) == {}
    assert client_class_exhibit("fafi", record, 0) is None

    class Detailed(type(record.clients[0])):
        per_class_alone: tuple[float | None, ...] | None = None

    clients = tuple(
        Detailed(**{**client.model_dump(), "per_class_alone": (None, 0.5, 0.25)}) for client in record.clients
    )
    shown = client_class_exhibit("fafi", record.model_copy(update={"clients": clients}), 0)
    assert [t for t in texts_in(shown.svg) if "client" in t or t == "fused"] == ["client 0", "client 1", "fused"]


def test_svg_takes_the_ink_of_its_page_says_what_it_shows_and_repeats_exactly(runs):
    svg = as_svg(accuracy_dots(runs), "accuracy", 'fafi "70" < V14')
    root = ET.fromstring(svg)
    assert root.get("aria-label") == 'fafi "70" < V14'
    assert root.get("role") == "img"
    assert INK not in svg and "currentColor" in svg
    assert svg == as_svg(accuracy_dots(runs), "accuracy", 'fafi "70" < V14')


def test_labels_are_text_and_not_formulas(make_record):
    told = texts_in(as_svg(accuracy_dots({"a$_$b": [make_record()], "名": [make_record()]}), "x", "x"))
    assert {"a$_$b", "名"} <= {*told}


def test_figures_need_no_pyplot_and_leave_the_settings_of_matplotlib_alone(runs, monkeypatch):
    import matplotlib

    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it fails
    before = matplotlib.rcParams.copy()
    as_svg(accuracy_curves(runs), "curves", "curves")
    assert matplotlib.rcParams.copy() == before


def test_powers_of_ten_are_plain_numbers_in_the_page() -> None:
    rows = [{"client": 0, "epoch": e, "lambda_raw": 10.0**e, "lambda_effective": 10.0**e} for e in range(1, 6)]
    assert "mathdefault" not in as_svg(lambda_paths(rows), "lambda", "powers")
