"""A fusion rule of one's own: fedshot fuse runs/votes -f class_weighted -f examples/confident_vote.py"""

from collections.abc import Sequence

from torch import Tensor

from fedshot.fusion import Fusion, Member, Outputs, Predictor, models_of
from fedshot.fusion.votes import mixture
from fedshot.fusion.weights import class_counts
from fedshot.task import Task


def confident_vote(sharpness: float = 1.0) -> Fusion:
    """score_y = log sum_k c_k(x)^sharpness (n_ky / sum_j n_jy) p_k(y|x), c_k the largest probability that k gives."""

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        holders = class_counts(members)[:, None, :]  # (K, 1, C)

        def combine(outputs: Outputs) -> Tensor:
            confidence = outputs.logits.softmax(2).amax(2, keepdim=True)  # (K, N, 1)
            return mixture(outputs, confidence**sharpness * holders.to(confidence))

        return Predictor(models_of(members), combine)

    return Fusion("confident_vote", fuse)
