"""What training under noise has cost a client's images: (ε, δ), by opacus' accountant."""

import warnings

from pydantic import BaseModel, ConfigDict

from fedshot.privacy.policy import CountsPolicy
from fedshot.spec import Spec


class Spent(BaseModel):
    """The guarantee of one client: for each of its training images, with all the views that were made of it.

    Whoever sees the upload, and every step on the way, can tell by a factor of at most e^epsilon, but for a chance of
    delta, whether the image was there or nothing in its place. The number of images is taken as known.
    """

    model_config = ConfigDict(frozen=True)

    epsilon: float
    delta: float
    epsilon_counts: float = 0.0  # of it, for noised class counts
    noise: float
    clip: float
    sample_rate: float  # with which each image came into a step
    steps: int
    accountant: str = "rdp"
    noise_source: str = "seeded"  # seeded noise is no privacy: whoever knows the seed can take it off


def spent(spec: Spec, sample_rate: float, steps: int) -> Spent:
    """The guarantee after so many steps of the sampled Gaussian mechanism (Mironov et al. 2019, arXiv:1908.10530).

    The ε of noised counts is added: both are told about the same images.
    """
    if spec.dp_noise is None:
        raise ValueError("a run without noise has no guarantee")
    from opacus.accountants import RDPAccountant

    from fedshot.privacy.randomness import seeded  # which needs torch: a client that only waits does not

    accountant = RDPAccountant()
    accountant.history = [(spec.dp_noise, sample_rate, steps)]
    with warnings.catch_warnings():
        # an order at the end of the range: the bound is valid, and could be a little tighter
        warnings.filterwarnings("ignore", message="Optimal order is the", category=UserWarning)
        trained = float(accountant.get_epsilon(spec.dp_delta))
    counts = CountsPolicy.parse(spec.counts)
    told = counts.epsilon if counts.kind == "noised" else 0.0
    return Spent(
        epsilon=trained + told,
        delta=spec.dp_delta,
        epsilon_counts=told,
        noise=spec.dp_noise,
        clip=spec.dp_clip,
        sample_rate=sample_rate,
        steps=steps,
        noise_source="seeded" if seeded(spec) else "system",
    )


def advantage_bound(epsilon: float, delta: float) -> float:
    """The largest advantage TPR - FPR that any test of membership can have: (e^ε - 1 + 2δ) / (e^ε + 1).

    Kairouz et al. 2015 (arXiv:1311.0776), Humphries et al. 2023 (arXiv:2010.12112).

    >>> round(advantage_bound(1.0, 0.0), 3), advantage_bound(0.0, 0.0)
    (0.462, 0.0)
    """
    from math import tanh

    # (e^ε - 1) / (e^ε + 1) = tanh(ε / 2), which does not overflow
    return min(1.0, tanh(epsilon / 2) + delta * (1 - tanh(epsilon / 2)))
