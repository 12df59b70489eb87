"""How far an image lies from what a client knows: class means and covariance of unit features."""

import torch
from torch import Tensor

from fedshot.symmetric import pack_lower, unpack_symmetric


def familiarity(features: Tensor, labels: Tensor, held_out: Tensor, classes: int) -> dict[str, Tensor]:
    """Class means, the covariance within classes, and how far held-out images lie from their nearest class mean.

    Args:
        features: unit features of the training images, (N, d).
        held_out: unit features of the validation images, (M, d).
    """
    means = class_means(features, labels, classes)
    centred = features - means[labels]
    covariance = centred.T @ centred / len(features)
    held = class_counts(labels, classes) > 0
    distances = nearest_distance(held_out, means, held, covariance)
    return {"means": means, "covariance": covariance, "distances": distances.sort().values}


def nearest_distance(features: Tensor, means: Tensor, held: Tensor, covariance: Tensor) -> Tensor:
    """min over held classes c of the squared Mahalanobis distance (f - m_c)^T S^-1 (f - m_c), (N,).

    S is the covariance (d, d) shrunk by a tenth towards a multiple of the identity of the same trace.

    >>> nearest_distance(torch.tensor([[2.0, 0.0]]), torch.zeros(1, 2), torch.tensor([True]), torch.eye(2))
    tensor([4.])
    """
    return _class_distances(features, means, held, covariance).amin(1)


def _class_distances(features: Tensor, means: Tensor, held: Tensor, covariance: Tensor) -> Tensor:
    """The same to every class, (N, C), infinite to those that are not held."""
    root, _ = _shrunk_cholesky(covariance)
    white_features, white_means = (torch.linalg.solve_triangular(root, x.T, upper=False).T for x in (features, means))
    return torch.cdist(white_features, white_means).square().masked_fill(~held, torch.inf)


def shrunk_root(covariance: Tensor) -> tuple[Tensor, bool]:
    """The lower Cholesky root of the shrunk covariance, and whether it has one.

    Values that are not finite, or a matrix that is no covariance, raise nothing here: the server refuses them.

    >>> shrunk_root(-torch.eye(2))[1]
    False
    """
    root, info = _shrunk_cholesky(covariance)
    return root, int(info) == 0  # which waits for a GPU


def _shrunk_cholesky(covariance: Tensor, shrink: float = 0.1) -> tuple[Tensor, Tensor]:
    spread = covariance.diagonal().mean().clamp(min=1e-8)
    identity = torch.eye(len(covariance), device=covariance.device)
    found = torch.linalg.cholesky_ex((1 - shrink) * covariance + shrink * spread * identity)
    return found.L, found.info


def class_counts(labels: Tensor, classes: int) -> Tensor:
    """How many images of each class there are, (C,) int64. `bincount` would wait for a GPU to find the largest label.

    >>> class_counts(torch.tensor([1, 1]), classes=2)
    tensor([0, 2])
    """
    return torch.nn.functional.one_hot(labels, classes).sum(0)


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Mean feature of each class, (C, d); zeros for a class without images.

    >>> class_means(torch.tensor([[1.0], [3.0]]), torch.tensor([1, 1]), classes=2)
    tensor([[0.], [2.]])
    """
    member = torch.nn.functional.one_hot(labels, classes).to(features)  # (N, C)
    return member.T @ features / member.sum(0).clamp(min=1)[:, None]


def turned_familiarity(
    features: Tensor, labels: Tensor, held_out: Tensor | None, held_out_labels: Tensor | None, classes: int
) -> dict[str, Tensor]:
    """The same for features of several turns of an image: means of each class in each turn, one covariance for all.

    A turn counts by the square of the length of its features.

    Args:
        features: of the training images in each turn, (N, T, d).
        labels: their classes, (N,).
        held_out: of the validation images, (M, T, d), where there are any.
        held_out_labels: their classes, (M,).

    Returns:
        `means` (C, T, d) of unit features and the packed `covariance`, both in half precision, the latter scaled to a
        mean variance of 1 so that what is small is not lost, since a distance is standardised anyway; and the `spread`:
        mean and deviation of held-out images' `turned_distance`, and by how many deviations it would grow if the client
        had not had their class. A client of one class cannot know the last, and says 0; so does one that held nothing
        back, and its own images' distances stand in for the others.
    """
    directions, lengths = _unit_and_length(features)
    means = torch.stack([class_means(turn, labels, classes) for turn in directions.unbind(1)], dim=1)
    centred = ((directions - means[labels]) * lengths).flatten(0, 1)
    covariance = centred.T @ centred
    packed = pack_lower(covariance / covariance.diagonal().mean().clamp(min=1e-30)).half()
    held = class_counts(labels, classes) > 0
    sent = means.half()
    told = sent.float(), held, unpack_symmetric(packed.float(), centred.shape[1])
    tested = features if held_out is None else held_out
    known = turned_distance(tested, *told)
    mean, deviation = known.mean(), deviation_to_come(known)
    separation = torch.zeros_like(mean)
    if held_out_labels is not None:
        foreign = turned_distance(tested, *told, without=held_out_labels)
        separation = torch.where(held.sum() > 1, (foreign.mean() - mean) / deviation, 0)
    return {"means": sent, "covariance": packed, "spread": torch.stack([mean, deviation, separation])}


def deviation_to_come(values: Tensor) -> Tensor:
    """How far one more value may be expected to lie from the mean of these, (M,) with M of 1 or more.

    s^2 = (2 · 0.3^2 + sum_i (v_i - mean)^2) / (M + 1) · (1 + 1/M): a mean of few values is off itself, and their own
    deviation may be next to nothing by chance, so that every other value would look impossibly far away. Hence the
    variance is estimated as if two more had been seen that vary by 0.3, about what logarithms of distances do.

    >>> [round(float(deviation_to_come(torch.tensor(values))), 2) for values in ([5.0], [5.0, 5.0], [4.0, 6.0] * 500)]
    [0.42, 0.3, 1.0]
    """
    count = len(values)
    summed = 2 * 0.3**2 + (values - values.mean()).square().sum()
    return (summed / (count + 1) * (1 + 1 / count)).sqrt()


def turned_distance(
    features: Tensor, means: Tensor, held: Tensor, covariance: Tensor, without: Tensor | None = None
) -> Tensor:
    """The mean over turns of the logarithm of `nearest_distance`, (N,).

    Args:
        features: (N, T, d); a turn counts by the square of their length.
        means: (C, T, d).
        without: a class for each image, (N,), whose means are left out.
    """
    directions, lengths = _unit_and_length(features)
    each = []
    for turned, centres in zip(directions.unbind(1), means.unbind(1), strict=True):
        distances = _class_distances(turned, centres, held, covariance)
        if without is not None:
            distances = distances.scatter(1, without[:, None], torch.inf)
        each.append(distances.amin(1))
    weights = lengths[:, :, 0].square()
    logs = torch.stack(each, dim=1).clamp(min=1e-12).log()  # (N, T)
    return (weights * logs).sum(1) / weights.sum(1).clamp(min=1e-12)


def _unit_and_length(features: Tensor) -> tuple[Tensor, Tensor]:
    """Directions (…, d) and lengths (…, 1); a feature of length 0 has no direction."""
    lengths = features.norm(dim=-1, keepdim=True)
    return features / lengths.clamp(min=1e-12), lengths
