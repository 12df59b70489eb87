"""Symmetric matrices as they travel: one triangle."""

import torch
from torch import Tensor


def pack_symmetric(matrix: Tensor) -> Tensor:
    """The lower triangle of a symmetric matrix (D, D), row by row.

    >>> pack_symmetric(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
    tensor([1., 2., 3.])
    """
    rows, columns = torch.tril_indices(*matrix.shape, device=matrix.device)
    return matrix[rows, columns]


def unpack_symmetric(packed: Tensor, width: int) -> Tensor:
    """The inverse of `pack_symmetric`.

    >>> unpack_symmetric(torch.tensor([1.0, 2.0, 3.0]), 2)
    tensor([[1., 2.], [2., 3.]])
    """
    rows, columns = torch.tril_indices(width, width, device=packed.device)
    matrix = packed.new_empty(width, width)
    matrix[rows, columns] = packed
    matrix[columns, rows] = packed
    return matrix
