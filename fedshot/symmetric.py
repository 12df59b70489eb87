"""Square matrices of which one triangle says everything, as they travel."""

import torch
from torch import Tensor


def pack_lower(matrix: Tensor) -> Tensor:
    """The lower triangle of a matrix (D, D), row by row.

    >>> pack_lower(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
    tensor([1., 2., 3.])
    """
    rows, columns = torch.tril_indices(*matrix.shape, device=matrix.device)
    return matrix[rows, columns]


def unpack_lower(packed: Tensor, width: int) -> Tensor:
    """The inverse of `pack_lower` for a triangular matrix.

    >>> unpack_lower(torch.tensor([1.0, 2.0, 3.0]), 2)
    tensor([[1., 0.], [2., 3.]])
    """
    rows, columns = torch.tril_indices(width, width, device=packed.device)
    matrix = packed.new_zeros(width, width)
    matrix[rows, columns] = packed
    return matrix


def unpack_symmetric(packed: Tensor, width: int) -> Tensor:
    """The inverse of `pack_lower` for a symmetric matrix.

    >>> unpack_symmetric(torch.tensor([1.0, 2.0, 3.0]), 2)
    tensor([[1., 2.], [2., 3.]])
    """
    lower = unpack_lower(packed, width)
    return lower + lower.tril(-1).mT
