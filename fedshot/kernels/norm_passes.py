"""The passes over memory that `fedshot.kernels.norm` is made of, as Triton kernels; the formulas stand there.

Maps are matrices of M rows (images and positions) and C columns (channels). `fixed` holds mean, rstd, scale and shift
of each column, (4, C). Sums over rows are shared among programs, whose parts a second kernel settles.
"""

import triton
import triton.language as tl


@triton.jit
def moments_kernel(x, means, squares, M, C, ROWS, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr):
    """Mean and sum of squared deviations of each column, over the rows of this program."""
    part = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    held = columns < C
    first = part * ROWS
    last = tl.minimum(first + ROWS, M)
    # Deviations from one of the values do not cancel as E[x^2] - E[x]^2 does where the mean is far from 0.
    origin = tl.load(x + first.to(tl.int64) * C + columns, mask=held, other=0.0).to(tl.float32)
    total = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
    square = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
    for start in range(first, last, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        inside = (rows < last)[:, None] & held[None, :]
        values = tl.load(x + rows.to(tl.int64)[:, None] * C + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        apart = tl.where(inside, values - origin[None, :], 0.0)
        total += apart
        square += apart * apart
    n = (last - first).to(tl.float32)
    apart_mean = tl.sum(total, 0) / n
    tl.store(means + part * C + columns, origin + apart_mean, mask=held)
    tl.store(squares + part * C + columns, tl.sum(square, 0) - n * apart_mean * apart_mean, mask=held)


@triton.jit
def settle_kernel(
    means, squares, weight, bias, running_mean, running_var, seen, fixed,
    M, C, PARTS, ROWS, eps, momentum, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """All programs' moments together: the running ones moved on, and mean, rstd, scale, shift of this batch (4, C)."""
    columns = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    parts = tl.arange(0, BLOCK_P)
    inside = (parts < PARTS)[:, None] & (columns < C)[None, :]
    place = parts[:, None] * C + columns[None, :]
    rows = tl.minimum(tl.maximum(M - parts * ROWS, 0), ROWS).to(tl.float32)[:, None]
    part_mean = tl.load(means + place, mask=inside, other=0.0)
    mean = tl.sum(part_mean * rows, 0) / M
    apart = tl.where(inside, part_mean - mean[None, :], 0.0)
    square = tl.sum(tl.load(squares + place, mask=inside, other=0.0) + rows * apart * apart, 0)
    held = columns < C
    rstd = 1.0 / tl.sqrt(square / M + eps)
    scale = tl.load(weight + columns, mask=held, other=0.0) * rstd
    tl.store(fixed + columns, mean, mask=held)
    tl.store(fixed + C + columns, rstd, mask=held)
    tl.store(fixed + 2 * C + columns, scale, mask=held)
    tl.store(fixed + 3 * C + columns, tl.load(bias + columns, mask=held, other=0.0) - mean * scale, mask=held)
    before = tl.load(running_mean + columns, mask=held, other=0.0)
    tl.store(running_mean + columns, before + momentum * (mean - before), mask=held)
    before = tl.load(running_var + columns, mask=held, other=0.0)
    tl.store(running_var + columns, before + momentum * (square / (M - 1) - before), mask=held)
    if tl.program_id(0) == 0:
        tl.store(seen, tl.load(seen) + 1)


@triton.jit
def apply_kernel(
    x, added, y, fixed, M, C, ADDED: tl.constexpr, RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr
):
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    columns = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    held = columns < C
    inside = (rows < M)[:, None] & held[None, :]
    place = rows[:, None] * C + columns[None, :]
    scale = tl.load(fixed + 2 * C + columns, mask=held, other=0.0)
    shift = tl.load(fixed + 3 * C + columns, mask=held, other=0.0)
    values = tl.load(x + place, mask=inside, other=0.0).to(tl.float32) * scale[None, :] + shift[None, :]
    if ADDED:
        values += tl.load(added + place, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        values = tl.maximum(values, 0.0)
    tl.store(y + place, values.to(y.dtype.element_ty), mask=inside)


@triton.jit
def slopes_kernel(
    dy, late, x, y, g, fixed, sums, M, C, ROWS, PARTS,
    LATE: tl.constexpr, ADDED: tl.constexpr, RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Sums of g and of g x̂ over the rows of this program; writes g where the addition needs it."""
    part = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    held = columns < C
    mean = tl.load(fixed + columns, mask=held, other=0.0)
    rstd = tl.load(fixed + C + columns, mask=held, other=0.0)
    scale = tl.load(fixed + 2 * C + columns, mask=held, other=0.0)
    shift = tl.load(fixed + 3 * C + columns, mask=held, other=0.0)
    slope_b = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
    slope_w = tl.zeros((BLOCK_M, BLOCK_C), tl.float32)
    last = tl.minimum(part * ROWS + ROWS, M)
    for start in range(part * ROWS, last, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        inside = (rows < last)[:, None] & held[None, :]
        place = rows.to(tl.int64)[:, None] * C + columns[None, :]
        slope = tl.load(dy + place, mask=inside, other=0.0).to(tl.float32)
        if LATE:
            slope += tl.load(late + place, mask=inside, other=0.0).to(tl.float32)
        values = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
        if RELU:
            if ADDED:
                kept = tl.load(y + place, mask=inside, other=0.0) > 0
            else:
                kept = values * scale[None, :] + shift[None, :] > 0
            slope = tl.where(kept, slope, 0.0)
            if ADDED or LATE:
                tl.store(g + place, slope.to(g.dtype.element_ty), mask=inside)
        slope_b += slope
        slope_w += slope * (values - mean[None, :])
    tl.store(sums + part * C + columns, tl.sum(slope_b, 0), mask=held)
    tl.store(sums + (PARTS + part) * C + columns, tl.sum(slope_w, 0) * rstd, mask=held)


@triton.jit
def settle_slopes_kernel(sums, slopes, C, PARTS, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr):
    """All programs' sums together: db and dw, (2, C)."""
    columns = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    parts = tl.arange(0, BLOCK_P)
    inside = (parts < PARTS)[:, None] & (columns < C)[None, :]
    place = parts[:, None] * C + columns[None, :]
    tl.store(slopes + columns, tl.sum(tl.load(sums + place, mask=inside, other=0.0), 0), mask=columns < C)
    place += PARTS * C
    tl.store(slopes + C + columns, tl.sum(tl.load(sums + place, mask=inside, other=0.0), 0), mask=columns < C)


@triton.jit
def spread_kernel(g, x, dx, fixed, slopes, M, C, MASKED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_C: tl.constexpr):
    """dx from g, or from dy where ReLU has still to mask it."""
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    columns = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    held = columns < C
    inside = (rows < M)[:, None] & held[None, :]
    place = rows[:, None] * C + columns[None, :]
    mean = tl.load(fixed + columns, mask=held, other=0.0)
    rstd = tl.load(fixed + C + columns, mask=held, other=0.0)
    scale = tl.load(fixed + 2 * C + columns, mask=held, other=0.0)
    mean_b = tl.load(slopes + columns, mask=held, other=0.0) / M
    mean_w = tl.load(slopes + C + columns, mask=held, other=0.0) / M
    slope = tl.load(g + place, mask=inside, other=0.0).to(tl.float32)
    values = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if MASKED:
        shift = tl.load(fixed + 3 * C + columns, mask=held, other=0.0)
        slope = tl.where(values * scale[None, :] + shift[None, :] > 0, slope, 0.0)
    standard = (values - mean[None, :]) * rstd[None, :]
    found = scale[None, :] * (slope - mean_b[None, :] - standard * mean_w[None, :])
    tl.store(dx + place, found.to(dx.dtype.element_ty), mask=inside)
