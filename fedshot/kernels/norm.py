"""BatchNorm, an addition and ReLU as one operation, in as few passes over memory as there can be (Triton, GPU).

A residual network at 32×32 spends more time in moving the maps of BatchNorm and ReLU than in convolutions. Here a
training step reads or writes a map 8 times where torch's own kernels do 13 times, and 12 instead of 19 times at the end
of a residual block. Maps lie in memory channels last: they are matrices of M = B*H*W rows, and a column is a channel.

    y = relu((x - mean) rstd w + b + added),  mean and rstd over the M rows

Backward, with g = dy where y > 0: db = sum g, dw = sum g x̂, dx = w rstd (g - db/M - x̂ dw/M), d added = g.
"""

from typing import Any

import torch
import triton
from torch import Tensor, nn

from fedshot.kernels.norm_passes import (
    apply_kernel,
    moments_kernel,
    settle_kernel,
    settle_slopes_kernel,
    slopes_kernel,
    spread_kernel,
)

# Measured on an H200, for maps of ResNet-18 in batches of 64 and 512.
_TILE, _WARPS = 4096, 4  # elements that a program of an elementwise pass holds, and its warps
_SUM_TILE, _SUM_WARPS = 4096, 4  # the same where columns are summed up
_PROGRAMS = 264  # that share the rows when columns are summed up: two for each multiprocessor of a large GPU


class _Split:
    """How the M x C elements of a map are shared among programs."""

    def __init__(self, maps: Tensor) -> None:
        self.columns = maps.shape[1]
        self.rows = maps.numel() // self.columns
        block = min(128, max(16, triton.next_power_of_2(self.columns)))
        across = triton.cdiv(self.columns, block)
        tiles = triton.cdiv(self.rows * block, _SUM_TILE)
        self.each = triton.cdiv(tiles, max(1, _PROGRAMS // across)) * (_SUM_TILE // block)  # rows of a program
        self.parts = triton.cdiv(self.rows, self.each)
        # grids and shapes of a pass over tiles, of a sum over rows, of a sum over its parts
        self.tiles = triton.cdiv(self.rows * block, _TILE), across
        self.tiled = {"BLOCK_M": _TILE // block, "BLOCK_C": block, "num_warps": _WARPS}
        self.shares = self.parts, across
        self.shared = {"BLOCK_M": _SUM_TILE // block, "BLOCK_C": block, "num_warps": _SUM_WARPS}
        self.gathers = (triton.cdiv(self.columns, 8),)
        self.gathered = {"BLOCK_P": triton.next_power_of_2(self.parts), "BLOCK_C": 8, "num_warps": 4}


class _NormAddRelu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        added: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        norm: Any,
        relu: bool,
        late: list[Tensor],
    ) -> Tensor:
        x = _channels_last(x)
        added = None if added is None else _channels_last(added)
        split, y = _Split(x), torch.empty_like(x)
        moments = x.new_empty(2, split.parts, split.columns, dtype=torch.float32)
        fixed = x.new_empty(4, split.columns, dtype=torch.float32)
        size = split.rows, split.columns
        moments_kernel[split.shares](x, moments[0], moments[1], *size, split.each, **split.shared)
        settle_kernel[split.gathers](
            moments[0], moments[1], weight, bias, norm.running_mean, norm.running_var, norm.num_batches_tracked, fixed,
            *size, split.parts, split.each, norm.eps, norm.momentum, **split.gathered,
        )  # fmt: skip
        has_added = added is not None
        apply_kernel[split.tiles](x, added if has_added else x, y, fixed, *size, has_added, relu, **split.tiled)
        ctx.save_for_backward(x, y if relu and has_added else None, fixed)
        ctx.added, ctx.relu, ctx.late = has_added, relu, late
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, y, fixed = ctx.saved_tensors
        dy = _channels_last(dy)
        late = _channels_last(ctx.late.pop()) if ctx.late else None
        masked_later = ctx.relu and not ctx.added and late is None  # dx masks dy by itself, and nobody else needs g
        split, dx = _Split(x), torch.empty_like(x)
        g = dy if masked_later or not ctx.relu else torch.empty_like(x)
        sums = x.new_empty(2, split.parts, split.columns, dtype=torch.float32)
        slopes = x.new_empty(2, split.columns, dtype=torch.float32)
        size = split.rows, split.columns
        slopes_kernel[split.shares](
            dy, dy if late is None else late, x, x if y is None else y, g, fixed, sums, *size, split.each, split.parts,
            late is not None, ctx.added, ctx.relu, **split.shared,
        )  # fmt: skip
        settle_slopes_kernel[split.gathers](sums, slopes, split.columns, split.parts, **split.gathered)
        spread_kernel[split.tiles](g, x, dx, fixed, slopes, *size, masked_later, **split.tiled)
        return dx, g if ctx.added else None, slopes[1], slopes[0], None, None, None


class _Fork(torch.autograd.Function):
    """One map for two readers. The second one's gradient is left in `late` for whoever made the map, to be added there
    while it is read anyway, instead of in a pass of its own."""

    @staticmethod
    def forward(ctx: Any, maps: Tensor, late: list[Tensor]) -> tuple[Tensor, Tensor]:
        ctx.late = late
        return maps.view_as(maps), maps.view_as(maps)

    @staticmethod
    def backward(ctx: Any, first: Tensor, second: Tensor) -> tuple[Tensor, None]:
        ctx.late.append(second)
        return first, None


def norm_add_relu(x: Tensor, norm: nn.BatchNorm2d, added: Tensor | None = None, relu: bool = True) -> Tensor:
    """relu(norm(x) + added) of a BatchNorm in training mode, whose running moments move on as torch's do."""
    late: list[Tensor] = []
    y = _NormAddRelu.apply(x, added, norm.weight, norm.bias, norm, relu, late)
    if relu:
        y.late_gradient = late
    return y


def fork(maps: Tensor) -> tuple[Tensor, Tensor]:
    """The map for two readers, whose gradients are added where they are needed."""
    late = getattr(maps, "late_gradient", None)
    return (maps, maps) if late is None else _Fork.apply(maps, late)


def _channels_last(maps: Tensor) -> Tensor:
    return maps.contiguous(memory_format=torch.channels_last)
