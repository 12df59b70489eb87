"""One model that imitates K: knowledge distilled on images that are nobody's private data.

Hinton et al. 2015 (arXiv:1503.02531); of an ensemble of clients as in FedDF, Lin et al. 2020 (arXiv:2006.07242), round
after round, and in DENSE, Zhang et al. 2022 (arXiv:2112.12371), once, on images of a generator. Features are aligned
after Qi et al. 2024 (PRICAI, "Personalized Federated Learning with Feature Alignment via Knowledge Distillation");
scores are calibrated after FEDIC, Shang et al. 2022 (arXiv:2205.00172).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fedshot.data.dataset import Labelled
from fedshot.data.public import NONE_SET_ASIDE
from fedshot.errors import UserError
from fedshot.fusion.average import average_states, first_logits
from fedshot.fusion.imagined import images_from_statistics, noise_images, procedural_images, stored
from fedshot.fusion.interview import Interview
from fedshot.fusion.outputs import Outputs
from fedshot.fusion.routed import common
from fedshot.fusion.rule import Fusion, Member, Predictor
from fedshot.fusion.weights import samples, uniform
from fedshot.local import losses
from fedshot.local.at_server import ServerTraining, trained_at_server
from fedshot.local.objective import Objective, Step, Term
from fedshot.local.train import TrainingDiverged
from fedshot.local.views import augment
from fedshot.local.weighting import Scheduled
from fedshot.method import Views
from fedshot.models import Classifier, unit
from fedshot.models.copies import copy_of
from fedshot.models.mirrored import MirroredClassifier
from fedshot.options import AboveZero, NotNegative
from fedshot.seeds import stream_seed
from fedshot.spec import Positive
from fedshot.task import Task

Images = Literal["public", "noise", "procedural", "statistics"]
Start = Literal["average", "largest"]
Beside = Literal["nothing", "common"]
Count = Annotated[int, Field(ge=2)] | None  # BatchNorm needs two; None: as many as all clients hold together

_AT_ONCE = 2000  # images of which views are made
_KEPT = 2000  # images of a lesson, to see how well it was learned


def distilled(
    teacher: str = "features",
    images: Images = "public",
    count: Count = 2000,
    views: Positive = 4,
    temperature: AboveZero = 1.0,
    calibrate: NotNegative = 0.0,
    alignment: NotNegative = 0.0,
    beside: Beside = "nothing",
    start: Start = "average",
    mirrored: bool = True,
    student: ServerTraining = ServerTraining(passes=10, cosine=True),
) -> Fusion:
    """One model, taught by another rule's ensemble on public images, or on images that the server makes for itself.

    L = T^2 KL( softmax(t'/T) || softmax((z + a)/T) ) + alignment (1 - cos(h, g)),  t' = t - calibrate log prior,
    for the teacher's scores t and the mean g of its models' unit features; z and h are the student's; a are the scores
    of the rule `common` with `beside=common`, in training and in use, or 0. `count` is how many images it makes, `none`
    for as many as the clients hold together: noise, overlapping shapes (procedural), or draws from pixel statistics.
    Each image is shown in so many `views`, the first of them as it is, and the teacher is asked about every one.
    `mirrored`: where a flip does not matter to the task, the student answers by an image and its mirror. Options of the
    teacher follow its name, with ; between them.
    """
    from fedshot.fusion import make_fusion  # whose table holds this rule

    if ".py" in teacher:  # whoever names a rule would run a file that no hash of the spec covers
        raise UserError(f"distilled: the teacher must be one of our rules, not a file: {teacher}")
    rule = make_fusion(teacher.replace(";", ","))
    if not rule.inductive:
        raise UserError(
            f"distilled: the teacher {rule.name} reads statistics of the test images (it is transductive), and a "
            "student must not learn from those: choose an inductive rule, e.g. teacher=features"
        )
    if alignment > 0 and (rule.trains or "weights" not in rule.needs):
        raise UserError(
            f"distilled: alignment draws the student's features to those of the clients' models, which the teacher "
            f"{rule.name} does not ask: choose another one, e.g. teacher=features, or leave alignment at 0"
        )

    def check(model: Classifier) -> None:
        rule.check(model)
        if alignment > 0 and model.upright() is not model:
            raise UserError(
                "distilled: clients of this method look at every turn of an image, and a student looks at it as it is: "
                "their features have nothing to be aligned; leave alignment at 0"
            )

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        members = sorted(members, key=lambda m: m.upload.header.client)
        ensemble = rule.fuse(members, task)
        support = common().fuse(members, task) if beside == "common" else None
        made = count or max(2, sum(member.upload.header.samples for member in members))
        seen = _views(_images(images, made, members, task), views, task)
        shares = _shares(ensemble, members) if alignment > 0 else None
        data = _lesson(ensemble, seen, task, calibrate * _log_prior(members), temperature, shares, support)
        objective = _objective(task.classes, temperature, alignment, support is not None)
        course = replace(task, augmentation="none")  # of another view the teacher has said nothing
        try:
            model = trained_at_server(
                _started(start, members), data, course, objective, Views(augmented=1), student, "a student"
            )
        except TrainingDiverged as end:
            raise UserError(f"the student's {end}: lower student.rate from {student.rate:g}") from None
        if mirrored and task.mirrored:
            model = MirroredClassifier(model)
        taught = Predictor((model,), first_logits, teacher=ensemble, lesson=data.some(_KEPT))
        if support is None:
            return taught
        told = support.combine
        return replace(taught, combine=lambda said: first_logits(said) + told(said), look=support.look)

    more = {"class_pixels": images == "statistics", "common": beside == "common"}
    return Fusion(
        "distilled",
        fuse,
        needs=(*rule.needs, *(section for section, read in more.items() if read and section not in rule.needs)),
        held_out=rule.held_out,
        public=rule.public or images == "public",
        trains=True,
        check=check,
    )


def single(
    images: Images = "procedural",
    count: Count = None,
    views: Positive = 4,
    temperature: AboveZero = 1.0,
    student: ServerTraining = ServerTraining(passes=10, batch=256, cosine=True),
) -> Fusion:
    """One model in place of the routed clients: `distilled` of `routed` beside common features, from no one's images.

    The server makes as many images as the clients hold together: overlapping shapes, which need nobody's consent.
    Public images teach better where there are some: `images=public`.
    """
    taught = distilled("routed", images, count, views, temperature, beside="common", start="largest", student=student)
    return replace(taught, name="single")


def _images(kind: Images, count: int, members: Sequence[Member], task: Task) -> Tensor:
    """What the teacher is asked about, (N, channels, H, W) uint8."""
    device = next(members[0].model.parameters()).device
    if kind == "noise":
        return noise_images(count, task).to(device)
    if kind == "procedural":
        return procedural_images(count, task).to(device)
    if kind == "statistics":
        return images_from_statistics(count, members, task).to(device)
    if task.public is None:
        raise UserError(
            f"images=public needs public images, {NONE_SET_ASIDE}; or distil on images=procedural or images=statistics"
        )
    return task.public.data.images


def _views(images: Tensor, views: int, task: Task) -> Tensor:
    """The images, then so many times less one an augmented view of each, (views · N, channels, H, W) uint8."""
    draws = torch.Generator(images.device)
    draws.manual_seed(stream_seed(task.seed, "distilled", "views"))
    parts = [part for _ in range(views - 1) for part in images.split(_AT_ONCE)]
    return torch.cat([images, *(stored(augment(part, task.augmentation, draws)) for part in parts)])


@torch.no_grad()
def _lesson(
    teacher: Predictor,
    images: Tensor,
    task: Task,
    prior: Tensor,
    temperature: float,
    shares: Tensor | None = None,
    support: Predictor | None = None,
) -> Labelled:
    """The images with what is said about each: (N, C), and what else `_objective` reads beside it.

    Softened probabilities of the teacher, perhaps scores of what stands beside the student, perhaps a feature (N, d).

    Args:
        prior: what is taken off the teacher's scores, (C,).
        shares: of each model in the mean feature; None for no feature.
        support: what stands beside the student; it asks no model.
    """
    scores, targets = [], []
    look = teacher.look if support is None else support.look
    for said in Interview({"teacher": (teacher.models, look)}, images, task).with_one("teacher"):
        told = teacher.combine(said).float()
        told = told - prior.to(told)
        parts = [(told / temperature).softmax(1)]
        if support is not None:
            parts.append(support.combine(said))
        if shares is not None:
            parts.append(_mean_feature(said, shares))
        targets.append(torch.cat(parts, dim=1))
        scores.append(told)
    return Labelled(images, torch.cat(scores).argmax(1), torch.cat(targets))


def _log_prior(members: Sequence[Member]) -> Tensor:
    """log( n_c / n ) over the whole federation, (C,).

    A class that nobody holds counts as the most frequent one: calibration favours it least.
    """
    n = torch.tensor([m.upload.header.class_counts for m in members], dtype=torch.float64).sum(0)
    prior = n / n.sum()
    return torch.where(prior > 0, prior, prior.max()).log()


def _shares(teacher: Predictor, members: Sequence[Member]) -> Tensor:
    """n_k / n of each of the teacher's models, (K,); 1 where the teacher has made one model of all."""
    return samples(members) if len(teacher.models) == len(members) else uniform(members[:1])


def _mean_feature(said: Outputs, shares: Tensor) -> Tensor:
    """sum_k w_k unit(h_k), (N, d)."""
    return torch.einsum("k,knd->nd", shares.to(said.features), unit(said.features))


def _objective(classes: int, temperature: float, alignment: float, supported: bool) -> Objective:
    """The loss of a student, whose targets are laid out by `_lesson`."""
    told = classes * (2 if supported else 1)  # before a feature

    def answers(step: Step) -> Tensor:
        targets = _targets(step)
        logits = step.logits + targets[:, classes:told] if supported else step.logits
        return losses.distillation(logits, targets[:, :classes], temperature)

    def features(step: Step) -> Tensor:
        return losses.cosine(step.unit, _targets(step)[:, told:])

    drawn = (Term("feature_alignment", features),) if alignment > 0 else ()
    return Objective(base=(Term("distillation", answers),), align=drawn, weighting=Scheduled(alignment))


def _targets(step: Step) -> Tensor:
    if step.targets is None:
        raise TypeError("a student needs data with targets")
    return step.targets


def _started(start: Start, members: Sequence[Member]) -> Classifier:
    """A model to teach: all members' averaged by samples, or a copy of the one with most samples."""
    largest = max(members, key=lambda m: m.upload.header.samples)
    model = copy_of(largest.model)
    if start == "average":
        model.load_state_dict(average_states((m.model.state_dict() for m in members), samples(members)))
    return model.upright().requires_grad_(True)
