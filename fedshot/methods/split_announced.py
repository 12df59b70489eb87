"""Adaptive base–head splitting, the split decided by the server from announced class counts (the notes' scheme 2)."""

from dataclasses import replace

import torch
from torch import Tensor

from fedshot.fusion import shared_base
from fedshot.fusion.split import stages_of_alike
from fedshot.local.objective import Objective
from fedshot.method import Client, Method, Opening
from fedshot.methods.fafi import fafi
from fedshot.methods.split_terms import near_start
from fedshot.methods.terms import FAFI_TERMS
from fedshot.options import NotNegative


def split_announced(mu: NotNegative = 0.01) -> Method:
    """FAFI + mu/2 |base - base_0|^2; clients announce their labels, their similarity decides which stages are base."""

    def broadcast(opening: Opening) -> dict[str, Tensor]:
        if opening.class_counts is None:
            raise TypeError("the split needs class counts, which clients announce in two phases")
        return {"shared": torch.tensor(stages_of_alike(opening.class_counts, len(opening.model.encoder.in_order())))}

    def objective(client: Client) -> Objective:
        return Objective((*FAFI_TERMS, *near_start(client, int(client.job["shared"]), mu)))

    return replace(
        fafi(), name="split_announced", objective=objective, fusion=shared_base(), phases=2, broadcast=broadcast
    )
