"""FAFI that knows its client's class prior while it trains, and forgets it when it predicts (logit adjustment)."""

from dataclasses import replace

from torch import Tensor

from fedshot.local.losses import balanced_softmax
from fedshot.local.objective import Objective, Step, Term
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CONTRAST, PROTOTYPE_PROTOTYPE, prototypes


def logit_adjusted(strength: float = 1.0) -> Method:
    """FAFI with CE(f P^T + strength log n, y) in place of CE(f P^T, y), Menon et al. 2021 (arXiv:2007.07314).

    n_c counts the client's images of class c. The loss explains the prior, so the prototypes need not: what a client
    says about an image then depends less on how many it holds of each class. `strength=0` is FAFI.
    """

    def objective(client: Client) -> Objective:
        counts = client.train.labels.new_tensor(client.class_counts).clamp(min=1) ** strength  # (C,)

        def classification(step: Step) -> Tensor:
            return balanced_softmax(step.logits, step.labels, counts)

        def prototype_feature(step: Step) -> Tensor:
            return balanced_softmax(step.unit @ prototypes(step).T, step.labels, counts)

        adjusted = Term("classification", classification), Term("prototype_feature", prototype_feature)
        return Objective(base=(adjusted[0], CONTRAST, adjusted[1], PROTOTYPE_PROTOTYPE))

    return replace(fafi(), name="logit_adjusted", objective=objective)
