"""The terms that methods are composed of."""

from torch import Tensor

from fedshot.local import losses
from fedshot.local.objective import Step, Term
from fedshot.models import prototypes_of


def prototypes(step: Step) -> Tensor:
    """The learnable prototypes of the model in training, (C, d)."""
    found = prototypes_of(step.model)
    if found is None:
        raise TypeError("this term needs a model with a prototype head")
    return found


def plain_logits(step: Step) -> Tensor:
    """Logits of the images without augmentation, (B, C)."""
    if step.plain_logits is None:
        raise TypeError("this term needs views=Views(plain=True)")
    return step.plain_logits


CLASSIFICATION = Term("classification", lambda s: losses.cross_entropy(s.logits, s.labels))
CONTRAST = Term("contrast", lambda s: losses.supcon(s.unit, s.labels, temperature=0.07))
PROTOTYPE_FEATURE = Term("prototype_feature", lambda s: losses.prototype_feature(s.unit, prototypes(s), s.labels))
PROTOTYPE_PROTOTYPE = Term("prototype_prototype", lambda s: losses.prototype_prototype(prototypes(s)))
PLAIN_CLASSIFICATION = Term("classification", lambda s: losses.cross_entropy(plain_logits(s), s.image_labels))

FAFI_TERMS = (CLASSIFICATION, CONTRAST, PROTOTYPE_FEATURE, PROTOTYPE_PROTOTYPE)
