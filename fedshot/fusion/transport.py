"""One model from K by optimal transport: channels matched to the largest client's, then averaged."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from fedshot.fusion.average import single
from fedshot.fusion.memory import OnDemand
from fedshot.fusion.otfusion import otfusion_state
from fedshot.fusion.rule import Fusion, Member, Predictor
from fedshot.fusion.weights import samples
from fedshot.models import Classifier
from fedshot.task import Task


def otfusion() -> Fusion:
    """One model: channels matched by optimal transport to the client with most samples, then averaged by samples."""

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        ordered = sorted(members, key=lambda m: (-m.upload.header.samples, m.upload.header.client))
        pivot = ordered[0].model
        states = OnDemand(tuple(partial(_state, member) for member in ordered))
        return single(pivot, otfusion_state(states, samples(ordered).tolist(), pivot.wiring()))

    return Fusion("otfusion", fuse, check=Classifier.wiring)


def _state(member: Member) -> dict[str, Tensor]:
    return member.model.state_dict()
