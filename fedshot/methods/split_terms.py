"""The first stages of an encoder held near the start that all clients share, so that they can be averaged."""

from torch import Tensor

from fedshot.local import losses
from fedshot.local.objective import Step, Term
from fedshot.method import Client


def near_start(client: Client, stages: int, mu: float) -> tuple[Term, ...]:
    """mu/2 |theta - theta^0|^2 over the parameters of the first stages; no term where there is nothing to hold."""
    held = set(client.model.encoder.entries(stages))
    start = {name: p.detach().clone() for name, p in client.model.encoder.named_parameters() if name in held}
    if not start or not mu:
        return ()

    def value(step: Step) -> Tensor:
        now = dict(step.model.encoder.named_parameters())
        return mu * losses.proximal([now[name] for name in start], list(start.values()))

    return (Term("proximal", value),)
