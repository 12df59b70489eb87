"""One formula a file; every loss is a pure function.

None reads a value back to the host or has a shape that depends on the data, so a step that calls them can be captured
in a CUDA graph; masks go through masked_fill, because torch.where copies a plain number from the host. None changes
precision: under autocast call them on float32 features with autocast off, because a similarity divided by 0.07 does
not survive 8 bits.
"""

from fedshot.local.losses.agreement import view_agreement
from fedshot.local.losses.alignment import cosine, mean_cosine, mse_all, mse_present
from fedshot.local.losses.alignment_uniformity import uniformity, view_alignment
from fedshot.local.losses.balanced_supcon import balanced_supcon
from fedshot.local.losses.bank_contrast import bank_contrast
from fedshot.local.losses.coral import coral
from fedshot.local.losses.cross_entropy import balanced_softmax, cross_entropy
from fedshot.local.losses.distillation import distillation
from fedshot.local.losses.hard_contrast import hard_contrast
from fedshot.local.losses.mmd import mmd
from fedshot.local.losses.prototypes import prototype_feature, prototype_prototype
from fedshot.local.losses.proximal import proximal
from fedshot.local.losses.sliced_wasserstein import sliced_wasserstein
from fedshot.local.losses.supcon import supcon

__all__ = [
    "balanced_softmax",
    "balanced_supcon",
    "bank_contrast",
    "coral",
    "cosine",
    "cross_entropy",
    "distillation",
    "hard_contrast",
    "mean_cosine",
    "mmd",
    "mse_all",
    "mse_present",
    "prototype_feature",
    "prototype_prototype",
    "proximal",
    "sliced_wasserstein",
    "supcon",
    "uniformity",
    "view_agreement",
    "view_alignment",
]
