"""The sliced Wasserstein distance of features to a reference."""

import torch.nn.functional as F
from torch import Tensor


def sliced_wasserstein(features: Tensor, directions: Tensor, quantiles: Tensor) -> Tensor:
    """Squared sliced Wasserstein-2 distance, Bonneel et al. 2015 (doi:10.1007/s10851-014-0506-3), times the width.

    L = d mean_t mean_i (x_t(i) - q_t((i - 1/2) / B))^2,  x_t(1) <= … <= x_t(B) the sorted projections t.x

    Args:
        features: vectors x of the batch, (B, d).
        directions: unit vectors t, (L, d).
        quantiles: the reference's sorted projections, (L, M), see `sorted_projections`. q_t is read off them at the
            batch's B levels, linearly between the levels (j - 1/2) / M of the reference.

    The factor d makes a shift by s count ||s||^2 at every width, in the mean over directions.

    >>> import torch
    >>> axes = torch.eye(2)
    >>> sliced_wasserstein(axes + 1, axes, sorted_projections(axes, axes))
    tensor(2.)
    """
    projected = sorted_projections(features, directions)  # (L, B)
    target = F.interpolate(quantiles[None], size=len(features), mode="linear")[0]
    return features.shape[1] * (projected - target).square().mean()


def sorted_projections(vectors: Tensor, directions: Tensor) -> Tensor:
    """The vectors (M, d) along each direction (L, d), ascending: (L, M)."""
    return (directions @ vectors.T).sort(dim=1).values
