"""A fusion rule of one's own on the uploads of a finished run: python examples/confident_vote.py runs/votes"""

import sys
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from fedshot.fusion import Fusion, Member, Outputs, Predictor, make_fusion, models_of
from fedshot.fusion.votes import mixture
from fedshot.fusion.weights import class_counts
from fedshot.server import fuse_and_score, receive
from fedshot.setting import prepare
from fedshot.store import RunFolder, read_spec
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


if __name__ == "__main__":
    folder = RunFolder(Path(sys.argv[1]))
    setting = prepare(read_spec(folder.spec))
    members = receive(setting, folder, needs=("weights",)).members
    rules = {"class_weighted": make_fusion("class_weighted"), "confident_vote": confident_vote()}
    for name, fused in fuse_and_score(setting, members, rules).items():
        print(f"{name:16} {fused.metrics.accuracy:.1%}, worst class {fused.metrics.worst_class_accuracy:.1%}")
