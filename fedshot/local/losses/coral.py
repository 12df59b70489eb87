"""The distance of the second moments of features to those of an isotropic reference."""

from torch import Tensor


def coral(features: Tensor, variance: float) -> Tensor:
    """Squared Frobenius distance of covariances as in CORAL, Sun & Saenko 2016, eq. 1 (arXiv:1607.01719), unbiased.

    ||E x x^T - v I||_F^2, estimated by L = mean_{i != j} (x_i.x_j)^2 - 2 v mean_i ||x_i||^2 + v^2 d

    Args:
        features: vectors x of the batch, (B, d).
        variance: v, of every coordinate of a reference with mean 0 and covariance v I.

    Two things differ from the paper. Moments are about the reference's mean, 0, and pairs i = j are left out: B centred
    vectors have a covariance of rank B - 1 at most, and for B < d the best that they could do is to fall together. So
    means count. The factor 1 / (4 d^2), meant for activations of variance about 1, is left out. The mean of L is 0 for
    vectors of the reference's distribution; a single batch can lie below 0. One vector has no pair: that mean is 0.

    >>> import torch
    >>> coral(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), 0.5)
    tensor(0.5000)
    """
    count, width = features.shape
    products = features @ features.T  # (B, B)
    lengths = products.diagonal()  # squared
    between = (products.square().sum() - lengths.square().sum()) / max(count * (count - 1), 1)
    return between - 2 * variance * lengths.mean() + variance**2 * width
