"""The geometry of the anchors, their determinism, and the mistakes a file of class vectors can hold."""

import math
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedshot.errors import UserError
from fedshot.local.anchors import DRAWN, anchors, simplex_etf, spread


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Many small products: a second thread on a busy machine only waits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def largest_cosine(rows: Tensor) -> float:
    cosines = rows @ rows.T
    return float(cosines.fill_diagonal_(-1).max())


@pytest.mark.parametrize(("classes", "width"), [(10, 512), (10, 10), (10, 9), (2, 1), (3, 2), (100, 128), (200, 512)])
def test_etf_has_unit_rows_at_equal_angles(classes: int, width: int) -> None:
    rows = simplex_etf(classes, width, generator())
    ideal = (classes * torch.eye(classes, dtype=torch.float64) - 1) / (classes - 1)
    torch.testing.assert_close(rows @ rows.T, ideal, rtol=0, atol=1e-12)
    assert rows.shape == (classes, width)
    assert rows.sum(dim=0).abs().max() < 1e-12


def test_etf_of_one_class_is_one_direction() -> None:
    rows = simplex_etf(1, 4, generator())
    assert rows.shape == (1, 4) and float(rows.norm()) == pytest.approx(1.0)


@pytest.mark.parametrize(("classes", "width"), [(4, 2), (6, 3), (10, 8), (10, 5), (200, 192)])
def test_up_to_twice_the_width_no_pair_is_closer_than_a_right_angle(classes: int, width: int) -> None:
    with pytest.warns(UserWarning, match=f"{classes} classes do not fit a simplex ETF in width {width}"):
        rows = simplex_etf(classes, width, generator())
    assert rows.shape == (classes, width)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(classes, dtype=torch.float64))
    assert largest_cosine(rows) == pytest.approx(0.0, abs=1e-12)
    assert torch.linalg.matrix_rank(rows) == width
    assert rows.sum(dim=0).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("classes", "width", "optimum"),
    [(5, 2, math.cos(2 * math.pi / 5)), (9, 2, math.cos(2 * math.pi / 9)), (12, 3, 1 / math.sqrt(5)), (24, 4, 0.5)],
)
def test_beyond_twice_the_width_the_rows_are_nearly_the_known_optimum(classes: int, width: int, optimum: float) -> None:
    """Regular polygons, the icosahedron, and the 24-cell."""
    with pytest.warns(UserWarning, match="do not fit"):
        rows = simplex_etf(classes, width, generator(1))
    assert rows.shape == (classes, width)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(classes, dtype=torch.float64))
    assert optimum - 1e-9 <= largest_cosine(rows) < optimum + 2e-3


def test_descent_alone_finds_the_square_and_the_octahedron() -> None:
    assert largest_cosine(spread(4, 2, generator())) == pytest.approx(0.0, abs=1e-3)
    assert largest_cosine(spread(6, 3, generator())) == pytest.approx(0.0, abs=1e-3)


def test_the_orientation_comes_from_the_generator_alone() -> None:
    torch.manual_seed(5)
    first = anchors("etf", 10, 32, seed=3)
    torch.manual_seed(6)
    state = torch.random.get_rng_state()
    assert torch.equal(anchors("etf", 10, 32, seed=3), first)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (anchors("etf", 10, 32, seed=4) - first).abs().max() > 0.1


@pytest.mark.parametrize("kind", DRAWN)
def test_every_kind_gives_float32_rows_of_its_length(kind: str) -> None:
    rows = anchors(kind, 10, 64, seed=1)
    length = 0.0 if kind == "zero" else 8.0 if kind.endswith("_scaled") else 1.0
    assert rows.shape == (10, 64) and rows.dtype == torch.float32
    torch.testing.assert_close(rows.norm(dim=1), torch.full((10,), length))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert anchors(kind, 5, 2, seed=1).shape == (5, 2)


def test_scaled_kinds_are_the_plain_ones_times_a_number() -> None:
    torch.testing.assert_close(anchors("etf_scaled", 10, 64, seed=1), 8 * anchors("etf", 10, 64, seed=1))
    torch.testing.assert_close(anchors("random_scaled", 10, 64, seed=1), 8 * anchors("random", 10, 64, seed=1))


def test_random_rows_are_not_an_etf() -> None:
    cosines = anchors("random", 10, 64, seed=1) @ anchors("random", 10, 64, seed=1).T
    off = cosines[~torch.eye(10, dtype=torch.bool)]
    assert off.std() == pytest.approx(1 / 8, rel=0.3)


def vectors(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, columns))


def unit_cosines(array: np.ndarray) -> Tensor:
    unit = array / np.linalg.norm(array, axis=1, keepdims=True)
    return torch.from_numpy(unit @ unit.T).float()


def test_semantic_rows_are_read_from_each_format_and_made_unit(tmp_path: Path) -> None:
    array = vectors(4, 6)
    np.save(tmp_path / "v.npy", array)
    np.savez(tmp_path / "v.npz", anything=array)
    np.savetxt(tmp_path / "v.csv", array, delimiter=",")
    expected = torch.from_numpy(array / np.linalg.norm(array, axis=1, keepdims=True)).float()
    for name in ("v.npy", "v.npz", "v.csv"):
        torch.testing.assert_close(anchors("semantic", 4, 6, seed=1, file=tmp_path / name), expected)


@pytest.mark.parametrize(("columns", "width"), [(3, 8), (20, 8), (20, 5), (7, 6)])
def test_semantic_cosines_survive_another_width_where_they_can(tmp_path: Path, columns: int, width: int) -> None:
    array = vectors(5, columns)
    np.save(tmp_path / "v.npy", array)
    rows = anchors("semantic", 5, width, seed=1, file=str(tmp_path / "v.npy"))
    assert rows.shape == (5, width)
    torch.testing.assert_close(rows @ rows.T, unit_cosines(array), rtol=0, atol=1e-5)
    assert torch.equal(rows, anchors("semantic", 5, width, seed=1, file=tmp_path / "v.npy"))


def test_semantic_vectors_too_wide_are_projected_on_their_leading_directions(tmp_path: Path) -> None:
    plane = np.zeros((6, 10))
    plane[:, :2] = vectors(6, 2)  # all but noise lies in two dimensions
    np.save(tmp_path / "v.npy", plane + 1e-6 * vectors(6, 10))
    rows = anchors("semantic", 6, 2, seed=1, file=tmp_path / "v.npy")
    torch.testing.assert_close(rows @ rows.T, unit_cosines(plane), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("v.npy", vectors(3, 6), "holds an array of 3 x 6, but the task has 4 classes: give one row a class"),
        ("v.npy", vectors(4, 1)[:, 0], "holds an array of 4, but the task has 4 classes"),
        ("v.npy", np.zeros((4, 6)), "row of zeros"),
        ("v.npy", np.full((4, 6), np.nan), "not finite"),
        ("v.npy", np.array([["a", "b"]] * 4), "is not a table of numbers"),
        ("v.npy", np.array([{}] * 4, dtype=object), "is not a table of numbers"),
    ],
)
def test_a_bad_array_is_a_user_error(tmp_path: Path, name: str, array: np.ndarray, message: str) -> None:
    np.save(tmp_path / name, array, allow_pickle=True)
    with pytest.raises(UserError, match=re.escape(message)):
        anchors("semantic", 4, 6, seed=1, file=tmp_path / name)


def test_a_bad_file_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        anchors("semantic", 4, 6, seed=1, file=tmp_path / "absent.npy")
    np.savez(tmp_path / "two.npz", a=vectors(4, 6), b=vectors(4, 6))
    with pytest.raises(UserError, match="holds 2 arrays"):
        anchors("semantic", 4, 6, seed=1, file=tmp_path / "two.npz")
    (tmp_path / "v.csv").write_text("class,x\ncat,1\n")
    with pytest.raises(UserError, match="is not a table of numbers"):
        anchors("semantic", 4, 6, seed=1, file=tmp_path / "v.csv")
    (tmp_path / "v.npz").write_bytes(b"not a zip file")
    with pytest.raises(UserError, match="is not a table of numbers"):
        anchors("semantic", 4, 6, seed=1, file=tmp_path / "v.npz")
    (tmp_path / "v.txt").write_text("1,2\n")
    with pytest.raises(UserError, match=r"give a \.npy, \.npz or \.csv file"):
        anchors("semantic", 4, 6, seed=1, file=tmp_path / "v.txt")


def test_kinds_and_files_must_match() -> None:
    with pytest.raises(UserError, match="unknown kind of anchors 'eft': did you mean 'etf'"):
        anchors("eft", 4, 6, seed=1)
    with pytest.raises(UserError, match="need a file"):
        anchors("semantic", 4, 6, seed=1)
    with pytest.raises(UserError, match="read no file"):
        anchors("etf", 4, 6, seed=1, file="v.npy")
