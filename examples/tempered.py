"""FAFI with other temperatures, to see what they are worth: fedshot study examples/temperatures.yaml"""

from dataclasses import replace

from fedshot.local import losses
from fedshot.local.objective import Objective, Term
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CLASSIFICATION, PROTOTYPE_PROTOTYPE, prototypes
from fedshot.options import AboveZero


def tempered(contrast: AboveZero = 0.07, prototype: AboveZero = 1.0) -> Method:
    """FAFI whose contrast and whose prototype-feature term have these temperatures; 0.07 and 1 are FAFI's own."""

    def objective(client: Client) -> Objective:
        supcon = Term("contrast", lambda s: losses.supcon(s.unit, s.labels, contrast))
        pulled = Term(
            "prototype_feature", lambda s: losses.prototype_feature(s.unit, prototypes(s), s.labels, prototype)
        )
        return Objective(base=(CLASSIFICATION, supcon, pulled, PROTOTYPE_PROTOTYPE))

    return replace(fafi(), name="tempered", objective=objective)
