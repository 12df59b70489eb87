"""Lambda policies, one a file."""

from fedshot.local.weighting.entropy import EntropyWeight, label_entropy
from fedshot.local.weighting.policy import Weighting, WeightReport
from fedshot.local.weighting.scheduled import AfterWarmup, Scheduled
from fedshot.local.weighting.uncertainty import (
    CoupledUncertainty,
    DecoupledUncertainty,
    Hinge,
    InverseVariance,
    NoPenalty,
    SigmaLearning,
)

__all__ = [
    "AfterWarmup",
    "CoupledUncertainty",
    "DecoupledUncertainty",
    "EntropyWeight",
    "Hinge",
    "InverseVariance",
    "NoPenalty",
    "Scheduled",
    "SigmaLearning",
    "WeightReport",
    "Weighting",
    "label_entropy",
]
