"""A step of a method of the user's own before anything is written: each of its terms must be a loss."""

from torch import Tensor

from fedshot.errors import UserError
from fedshot.local.objective import Term
from fedshot.local.step import Training
from fedshot.method import Client, Method
from fedshot.spec import Spec


def rehearse_terms(method: Method, client: Client, spec: Spec) -> None:
    """Asks every term about one batch of a client, and says which of them is not what training needs."""
    objective = method.objective(client)
    training = Training(client, objective, method.views, spec)
    training.shuffle(1)
    step = training.forward(training.sizes[0])
    values = [(term, term.value(step)) for term in (*objective.base, *objective.align)]
    for term, value in values:
        _check(term, value)
    if not any(value.requires_grad for _, value in values):
        names = ", ".join(repr(term.name) for term, _ in values) or "none"
        raise UserError(f"nothing can be learned from the terms of {method.name} ({names}): none depends on the model")


def _check(term: Term, value: object) -> None:
    if not isinstance(value, Tensor):
        raise UserError(f"the term {term.name!r} must be a tensor that the model can learn from, not {value!r}")
    if value.ndim:
        raise UserError(
            f"the term {term.name!r} must be one number, and its shape is {tuple(value.shape)}: take its mean"
        )
