"""Fixed targets for the prototypes of all classes, the same for every client of a run.

The simplex ETF is the geometry that neural collapse tends to (Papyan et al. 2020, arXiv:2008.08186). The other kinds
are its controls: what do random, zero, longer or meaningful anchors do in its place?
"""

import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedshot.errors import UserError, unknown
from fedshot.seeds import stream


def anchors(kind: str, classes: int, width: int, seed: int, file: str | Path | None = None) -> Tensor:
    """The anchors of a run: one row a class, (classes, width) float32, from the run's stream named "anchors".

    Args:
        kind: "random", "random_scaled", "etf", "etf_scaled", "zero" or "semantic". The scaled kinds have rows of length
            sqrt(width), the length of prototypes drawn from N(0, I); the others have unit rows.
        file: the class vectors of the kind "semantic" (.npy, .npz or .csv, one row a class).

    >>> a = anchors("etf", classes=3, width=8, seed=1)
    >>> (a @ a.T).round(decimals=4)
    tensor([[ 1.0000, -0.5000, -0.5000],
            [-0.5000,  1.0000, -0.5000],
            [-0.5000, -0.5000,  1.0000]])
    """
    if kind != "semantic" and kind not in DRAWN:
        raise unknown("kind of anchors", kind, [*DRAWN, "semantic"])
    if kind != "semantic" and file is not None:
        raise UserError(f"anchors {kind!r} read no file, but {str(file)!r} was given: use 'semantic' or leave it out")
    if kind == "semantic" and file is None:
        raise UserError("anchors 'semantic' need a file of class vectors (.npy, .npz or .csv), but none was given")
    generator = stream(seed, "anchors")
    if file is not None:
        return fit_width(read_vectors(file, classes), width, generator).float()
    return DRAWN[kind](classes, width, generator).float()


def random_directions(classes: int, width: int, generator: torch.Generator) -> Tensor:
    """Gaussian rows made unit, (classes, width) float64."""
    return F.normalize(torch.randn(classes, width, generator=generator, dtype=torch.float64), dim=1)


def simplex_etf(classes: int, width: int, generator: torch.Generator) -> Tensor:
    """Unit rows as far from each other as they can be, in a random orientation, (classes, width) float64.

    Up to width + 1 classes fit a simplex ETF: every pair has cosine -1/(C-1), the least largest cosine there is.
    More do not; a warning then says so, and the rows are the closest thing:

    - C <= 2 width: C - width simplices of nearly equal size in orthogonal subspaces. Pairs of one simplex have a
      negative cosine, all others 0, and no arrangement has a smaller largest cosine (Rankin 1955).
    - beyond: rows spread numerically, see `spread`.

    >>> a = simplex_etf(4, 3, torch.Generator().manual_seed(0))
    >>> (a[0] @ a[1:].T).round(decimals=4)
    tensor([-0.3333, -0.3333, -0.3333], dtype=torch.float64)
    """
    if classes > width + 1:
        warnings.warn(
            f"{classes} classes do not fit a simplex ETF in width {width}, which holds at most {width + 1}: "
            "the anchors are spread as evenly as possible instead",
            stacklevel=2,
        )
    if classes > 2 * width:
        return spread(classes, width, generator)
    if classes == 1:
        return random_directions(1, width, generator)
    groups = max(1, classes - width)
    sizes = [classes // groups + (group < classes % groups) for group in range(groups)]
    corners = torch.block_diag(*[_simplex(size) for size in sizes])  # (C, C - groups)
    return corners @ _orthonormal(corners.shape[1], width, generator)


def spread(classes: int, width: int, generator: torch.Generator, steps: int = 500) -> Tensor:
    """Unit rows whose largest pairwise cosine is made small by descent, (classes, width) float64.

    Minimises 1/s log sum_{i<j} exp(s x_i.x_j) over the sphere while the sharpness s grows, so that the mean repulsion
    of the first steps turns into that of the closest pairs; the best of several starts is kept. A good local optimum,
    not a proven one.
    """
    starts = max(1, min(16, 100_000 // classes**2))
    rows = random_directions(starts * classes, width, generator).view(starts, classes, width)
    itself = torch.eye(classes, dtype=torch.bool)
    for step in range(steps):
        done = step / steps
        sharpness = 4.0 * 1000.0**done
        cosines = (rows @ rows.mT).masked_fill(itself, -torch.inf)
        weight = (sharpness * cosines).flatten(1).softmax(dim=1).view_as(cosines)
        slope = weight @ rows
        slope -= (slope * rows).sum(dim=2, keepdim=True) * rows  # along the sphere
        longest = slope.norm(dim=2, keepdim=True).amax(dim=1, keepdim=True)
        rows = F.normalize(rows - 0.3 * 0.001**done * slope / longest.clamp(min=1e-12), dim=2)
    largest = (rows @ rows.mT).masked_fill(itself, -1.0).amax(dim=(1, 2))  # (starts,)
    return rows[largest.argmin()]


def read_vectors(file: str | Path, classes: int) -> Tensor:
    """Class vectors of a .npy, .npz (one array) or .csv (numbers only) file as unit rows, (classes, any) float64."""
    path = Path(file)
    try:
        if path.suffix == ".csv":
            array = np.loadtxt(path, delimiter=",", ndmin=2)
        elif path.suffix == ".npy":
            array = np.load(path, allow_pickle=False)
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                if len(arrays.files) != 1:
                    raise UserError(f"{path} holds {len(arrays.files)} arrays: save the class vectors as its only one")
                array = arrays[arrays.files[0]]
        else:
            raise UserError(f"anchors cannot be read from {path}: give a .npy, .npz or .csv file")
        vectors = torch.from_numpy(np.asarray(array, dtype=np.float64))
    except FileNotFoundError:
        raise UserError(f"the file of anchors {path} does not exist: check the path") from None
    except (OSError, ValueError, TypeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is not a table of numbers ({error}): save one row of numbers a class") from None
    if vectors.ndim != 2 or len(vectors) != classes:
        shape = " x ".join(map(str, vectors.shape))
        raise UserError(f"{path} holds an array of {shape}, but the task has {classes} classes: give one row a class")
    if not vectors.isfinite().all() or not vectors.any(dim=1).all():
        raise UserError(f"{path} has a row of zeros or a value that is not finite: give every class a direction")
    return F.normalize(vectors, dim=1)


def fit_width(vectors: Tensor, width: int, generator: torch.Generator) -> Tensor:
    """Unit rows (C, d) carried to unit rows (C, width), their cosines kept as well as they can be.

    d = width: as they are. d < width: embedded by a random orthonormal map, which keeps every cosine. d > width:
    projected on their leading right singular vectors (PCA about the origin, the best approximation of the cosines of
    that rank; exact for C <= width), then placed by a random orthonormal map.
    """
    if vectors.shape[1] == width:
        return vectors
    if vectors.shape[1] > width:
        left, scale, _ = torch.linalg.svd(vectors, full_matrices=False)
        kept = min(width, len(scale))
        signs = left.gather(0, left.abs().argmax(dim=0, keepdim=True)).sign()  # fixed, as the solver's are arbitrary
        vectors = (left * signs * scale)[:, :kept]
    return F.normalize(vectors @ _orthonormal(vectors.shape[1], width, generator), dim=1)


def _simplex(corners: int) -> Tensor:
    """The corners of a regular simplex about the origin as unit rows, (corners, corners - 1): Helmert's matrix."""
    k = torch.arange(1, corners, dtype=torch.float64)
    helmert = torch.ones(corners, corners - 1, dtype=torch.float64).triu()
    helmert[1:] -= torch.diag(k)  # column k: k ones, then -k
    return helmert / (k * (k + 1)).sqrt() * math.sqrt(corners / (corners - 1))


def _orthonormal(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Uniformly random orthonormal rows, (rows, columns) float64, rows <= columns."""
    q, r = torch.linalg.qr(torch.randn(columns, rows, generator=generator, dtype=torch.float64))
    return (q * r.diagonal().sign()).T


DRAWN: dict[str, Callable[[int, int, torch.Generator], Tensor]] = {
    "random": random_directions,
    "random_scaled": lambda classes, width, generator: math.sqrt(width) * random_directions(classes, width, generator),
    "etf": simplex_etf,
    "etf_scaled": lambda classes, width, generator: math.sqrt(width) * simplex_etf(classes, width, generator),
    "zero": lambda classes, width, generator: torch.zeros(classes, width, dtype=torch.float64),
}
