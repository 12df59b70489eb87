"""Pictures of a partition: what they must show at every size."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fedshot.errors import UserError
from fedshot.partition import Partition, split
from fedshot.partition.picture import as_figure, as_text


def lines(part: Partition, width: int) -> list[str]:
    console = Console(width=width, no_color=True, legacy_windows=False)
    with console.capture() as captured:
        console.print(as_text(part, width))
    return captured.get().splitlines()


def make(classes: int, clients: int, recipe: str = "dirichlet", **parameters: float) -> Partition:
    return split(np.repeat(np.arange(classes), 50), recipe, clients, 1, **{"alpha": 0.1, **parameters})


def test_the_map_of_the_notes_shows_every_count() -> None:
    part = split(np.repeat(np.arange(10), 5000), "dirichlet", 5, 1, alpha=0.05)
    head, *rows = lines(part, 80)
    assert head.split() == [*map(str, range(10)), "samples", "bits"]
    for client, row in enumerate(rows[:5]):
        counts = [str(count) if count else "·" for count in part.class_counts[client]]
        assert row.split() == [
            str(client), *counts, str(part.sizes[client]), f"{part.entropy_bits[client]:.2f}"
        ]  # fmt: skip
    assert rows[5] == "dirichlet, clients 5, seed 1, alpha 0.05"


@pytest.mark.parametrize(("classes", "clients"), [(2, 1), (10, 100), (62, 7), (100, 10), (200, 100), (1000, 3)])
@pytest.mark.parametrize("width", [40, 80, 130])
def test_every_row_fits_and_ends_with_size_and_entropy(classes: int, clients: int, width: int) -> None:
    part = make(classes, clients)
    shown = lines(part, width)
    assert all(len(line) <= width for line in shown)
    for client, row in enumerate(shown[1 : clients + 1]):
        assert row.split()[0] == str(client)
        assert row.split()[-2:] == [str(part.sizes[client]), f"{part.entropy_bits[client]:.2f}"]


def test_narrow_cells_are_shaded_by_amount_and_merged_cells_are_named() -> None:
    part = Partition.of([np.arange(101)], np.array([0] * 100 + [1]), "by hand", {}, classes=60)
    row = lines(part, 80)[1].split()[1]
    assert row == "█░" + "·" * 58
    assert any("one cell stands for 3 classes" in line for line in lines(make(100, 5), 60))


def test_what_the_map_leaves_out_is_said() -> None:
    assert any("20 more clients are not shown" in line for line in lines(make(10, 120), 80))
    assert "overlap" in " ".join(lines(make(10, 5, "released"), 80))
    assert "350 samples have no holder" in " ".join(lines(make(10, 3, "shards", classes_per_client=1), 80))


def test_an_empty_federation_can_be_drawn(tmp_path: Path) -> None:
    nobody = Partition.of([np.array([], dtype=int)] * 2, np.arange(3), "by hand", {})
    assert lines(nobody, 60)[1].split() == ["0", "·", "·", "·", "0", "0.00"]
    as_figure(nobody).savefig(tmp_path / "empty.png")


@pytest.mark.parametrize(("classes", "clients"), [(2, 1), (10, 5), (100, 100)])
def test_the_figure_shows_the_counts_and_the_sizes(tmp_path: Path, classes: int, clients: int) -> None:
    part = make(classes, clients)
    figure = as_figure(part, [f"name {label}" for label in range(classes)])
    heat, bars = figure.axes[:2]
    shown = np.ma.filled(heat.collections[0].get_array(), 0).reshape(part.class_counts.shape)
    assert np.array_equal(shown, part.class_counts)
    assert [round(bar.get_width()) for bar in bars.patches] == list(part.sizes)
    assert heat.yaxis_inverted()  # client 0 on top, as in the terminal
    ticks = [tick.get_text() for tick in heat.get_xticklabels()]
    assert ticks[0] == ("name 0" if classes <= 30 else "0")
    figure.savefig(tmp_path / "figure.png", dpi=40)
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_too_few_class_names() -> None:
    with pytest.raises(UserError, match="3 class names do not suffice for 10 classes"):
        as_figure(make(10, 2), ["a", "b", "c"])


def test_matplotlib_is_loaded_only_for_a_figure_and_pyplot_never() -> None:
    code = (
        "import sys; from fedshot.partition import split; from fedshot.partition.picture import as_figure, as_text;"
        "part = split([0, 1, 0, 1], 'iid', 2, 1); as_text(part, 80); assert 'matplotlib' not in sys.modules;"
        "as_figure(part); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
