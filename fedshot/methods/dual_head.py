"""A linear head for classification, prototypes for contrast alone (the notes' V17)."""

from dataclasses import replace

import torch
from torch import Tensor

from fedshot.local import losses
from fedshot.local.objective import Objective, Step, Term
from fedshot.local.weighting import DecoupledUncertainty, Hinge, SigmaLearning, Weighting
from fedshot.method import Client, Method
from fedshot.methods.aligned import Alignment, initial_prototypes, policy
from fedshot.methods.fafi import fafi
from fedshot.methods.terms import CONTRAST, PROTOTYPE_FEATURE, PROTOTYPE_PROTOTYPE
from fedshot.models import DualHead, build, unit
from fedshot.seeds import stream


def dual_head(
    hinge: Hinge = Hinge(),
    sigma: SigmaLearning = SigmaLearning(),
    alignment: Alignment = Alignment("etf", "present"),
) -> Method:
    """CE of a linear head + lambda [SupCon + prototype terms + MSE(prototypes, ETF)]; inference by prototypes."""

    def classification(step: Step) -> Tensor:
        return losses.cross_entropy(_linear_logits(step.model.head, step.features), step.labels)

    def weighting(client: Client) -> Weighting:
        return DecoupledUncertainty(_loss_ratio(client), sigma, prior="cosine", penalty=hinge)

    def objective(client: Client) -> Objective:
        anchors = alignment.targets(client)
        align = (CONTRAST, PROTOTYPE_FEATURE, PROTOTYPE_PROTOTYPE, alignment.term(lambda _: anchors))
        base = (Term("classification", classification),)
        return Objective(base, align, policy(alignment, weighting, client), anchors)

    return replace(fafi(), name="dual_head", model=lambda task: build(task, DualHead), objective=objective)


def _linear_logits(head: torch.nn.Module, features: Tensor) -> Tensor:
    if not isinstance(head, DualHead):
        raise TypeError("dual_head needs a model with a DualHead")
    return head.linear_logits(features)


@torch.no_grad()
def _loss_ratio(client: Client) -> float:
    """Where lambda starts: CE / (prototype terms) of the untrained model on one batch, within [0.01, 2]."""
    order = torch.randperm(len(client.train), generator=stream(client.task.seed, "loss ratio", client.id))
    batch = order[: client.batch_size].to(client.train.labels.device)
    labels, model, prototypes = client.train.labels[batch], client.model, initial_prototypes(client)
    training = model.training
    features = model.eval().features(client.task.prepare(client.train.images[batch]))
    model.train(training)
    classification = losses.cross_entropy(_linear_logits(model.head, features), labels)
    contrast = losses.prototype_feature(unit(features), prototypes, labels) + losses.prototype_prototype(prototypes)
    return float((classification / contrast).clamp(0.01, 2.0))
