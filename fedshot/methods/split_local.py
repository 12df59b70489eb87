"""Adaptive base–head splitting, each client deciding alone (the notes' scheme 2)."""

from dataclasses import replace

from fedshot.fusion import shared_base
from fedshot.fusion.split import stages_of_one
from fedshot.local.objective import Objective
from fedshot.method import Client, Method
from fedshot.methods.fafi import fafi
from fedshot.methods.split_terms import near_start
from fedshot.methods.terms import FAFI_TERMS
from fedshot.options import NotNegative


def split_local(mu: NotNegative = 0.01) -> Method:
    """FAFI + mu/2 |base - base_0|^2; a client's label entropy decides how many stages are base, the least is shared."""

    def objective(client: Client) -> Objective:
        stages = stages_of_one(client.class_counts, len(client.model.encoder.in_order()))
        return Objective((*FAFI_TERMS, *near_start(client, stages, mu)))

    return replace(fafi(), name="split_local", objective=objective, fusion=shared_base("least"))
