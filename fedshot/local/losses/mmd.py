"""The maximum mean discrepancy of two sets of vectors."""

from torch import Tensor


def mmd(features: Tensor, reference: Tensor) -> Tensor:
    """Squared maximum mean discrepancy, unbiased, Gretton et al. 2012, eq. 3 (JMLR 13, 723-773).

    L = mean_{i != j} k(x_i, x_j) + mean_{i != j} k(y_i, y_j) - 2 mean_{i, j} k(x_i, y_j)
    k(x, y) = exp(-||x - y||^2 / 2)

    Args:
        features: vectors x of the batch, (B, d).
        reference: fixed vectors y, (M, d), whose squared distances are 2 in the mean, as those of independent vectors
            of length about 1. The kernel's bandwidth is that distance: the same for every width and every batch.

    Its mean is 0 for vectors of the reference's distribution, whatever B; a single batch can lie below 0. A set of one
    vector has no pair, and its first mean is 0.

    >>> import torch
    >>> mmd(torch.eye(2), -torch.eye(2))
    tensor(0.2325)
    """
    return _within(features) + _within(reference) - 2 * _kernel(features, reference).mean()


def _within(vectors: Tensor) -> Tensor:
    count = len(vectors)
    # k(x, x) = 1 for each vector with itself
    return (_kernel(vectors, vectors).sum() - count) / max(count * (count - 1), 1)


def _kernel(one: Tensor, other: Tensor) -> Tensor:
    squares = one.square().sum(dim=1)[:, None] + other.square().sum(dim=1)  # (B, M)
    return (one @ other.T - squares / 2).exp()
