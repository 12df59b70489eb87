"""FAFI with fewer features than there are classes, with and without anchors: fedshot study examples/narrow.yaml"""

import math
from dataclasses import replace
from typing import Literal

import torch
from torch import nn

from fedshot.errors import UserError
from fedshot.method import Method
from fedshot.methods.aligned import Alignment
from fedshot.methods.etf import etf
from fedshot.methods.fafi import fafi
from fedshot.models import Classifier, Encoder, PrototypeHead, Wiring, build
from fedshot.models.encoder import Stage
from fedshot.seeds import stream
from fedshot.spec import Positive
from fedshot.task import Task


class Projected(Encoder):
    """An encoder, then a trainable projection of its features, at first to random orthonormal directions."""

    def __init__(self, whole: Encoder, width: int, seed: int) -> None:
        super().__init__()
        if not 0 < width <= whole.width:
            raise UserError(f"the encoder has {whole.width} features: give a width from 1 to {whole.width}")
        self.whole, self.width = whole, width
        self.projection = nn.Linear(whole.width, width, bias=False)
        directions = torch.randn(whole.width, width, generator=stream(seed, "weights", "projection"))
        self.projection.weight = nn.Parameter(torch.linalg.qr(directions).Q.T.contiguous())

    def in_order(self) -> tuple[Stage, ...]:
        stages = (Stage(tuple(f"whole.{part}" for part in stage.parts), stage.run) for stage in self.whole.in_order())
        return *stages, Stage(("projection",), self.projection)

    def wiring(self) -> Wiring:
        raise UserError("channels behind a projection cannot be matched: use another rule")


def narrow(width: Positive = 64, anchors: Literal["none", "etf", "random"] = "none") -> Method:
    """FAFI, or V7 at λ = 5 with these anchors, on so many features; prototypes start as long as those of all."""

    def model(task: Task) -> Classifier:
        wide = build(task, lambda whole, classes: PrototypeHead(width, classes))
        with torch.no_grad():
            wide.head.prototypes *= math.sqrt(wide.encoder.width / width)
        return Classifier(Projected(wide.encoder, width, task.seed), wide.head)

    parent = fafi() if anchors == "none" else etf(anneal="constant", alignment=Alignment(anchors))
    return replace(parent, name="narrow", model=model)
