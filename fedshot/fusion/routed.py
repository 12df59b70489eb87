"""Which client to believe: common features say what the image is like, familiarity who has seen its like."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from fedshot.fusion.outputs import Outputs
from fedshot.fusion.rule import Fusion, Member, Predictor, models_of
from fedshot.fusion.weights import class_counts
from fedshot.local.familiarity import turned_distance
from fedshot.models.look import Look, common_look
from fedshot.options import NotNegative
from fedshot.sections import by_turn
from fedshot.symmetric import unpack_lower, unpack_symmetric
from fedshot.task import Task

_TINY = 1e-12  # keeps the logarithm of a probability finite
_ALONE = 0.5  # how sure common features are where nobody else is asked
_RIDGE = 0.2


def common(ridge: NotNegative = _RIDGE, confidence: NotNegative = _ALONE) -> Fusion:
    """No network at all: linear discriminants on common features, from the statistics of all clients together.

    log p(c|x) = confidence · (m_c^T S^-1 f - m_c^T S^-1 m_c / 2) + log(n_c / n) up to a constant, with f the common
    features of x, m_c the mean of class c over all clients' images and S the covariance within classes plus a ridge:
    exactly what one client with all the data would find. The ridge is `ridge` · tr(S) / n, the less the more images
    there are for so many features. In thousands of dimensions such a posterior is too sure of itself: `confidence`
    below 1 makes it humbler.
    """

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        discriminants = Discriminants.of(members, ridge)
        return Predictor(
            (), lambda outputs: discriminants.log_posterior(_seen(outputs), confidence), look=_look(members, task)
        )

    return Fusion("common", fuse, needs=("common",))


def routed(
    sharpness: NotNegative = 1.5,
    confidence: NotNegative = 0.15,
    share: NotNegative = 1.25,
    ridge: NotNegative = _RIDGE,
) -> Fusion:
    """Each client counts by how likely its classes are by common features, and by how familiar the image is to it.

    g(c|x) is the posterior of the rule `common`, s_c(x) its linear score; r_k(x) = sum_c g(c|x) n_kc / sum_j n_jc, how
    likely it is that client k holds such an image; z_k(x) the logarithm of the distance to the client's nearest class
    mean, averaged over the turns of the image, standardised by the client's held-out images; p_k(y|x) proportional to
    exp(l_ky / T_k + share e_k s_y / sigma) over the client's classes, T_k its temperature and e_k its error: who errs
    often listens more to common features, whose scores are taken in units of the error sigma that they have themselves.
    With d how far familiar and foreign images lie apart in the clients' own judgement, w_k proportional to
    r_k exp(-sharpness d z_k), and q_k to the root of p_k, score_y = 2 log sum_k w_k q_k(y|x). The less familiarity is
    worth, the more the choice is left to common features: the confidence in g is confidence^d 0.5^(1 - d).
    """

    def fuse(members: Sequence[Member], task: Task) -> Predictor:
        discriminants = Discriminants.of(members, ridge)
        familiar = [TurnedFamiliar.of(member, discriminants.device) for member in members]
        holders = class_counts(members).to(discriminants.device)  # (K, C), columns add up to 1
        reliability = [m.upload.section("reliability") for m in members]
        temperature, error = (
            torch.stack([s[key] for s in reliability]).to(holders) for key in ("temperature", "error")
        )
        foreign = torch.stack([~known.held for known in familiar])[:, None]  # (K, 1, C)
        told = separation(familiar, members)
        steepness, sureness = sharpness * told, confidence**told * _ALONE ** (1 - told)
        listening = share * error / discriminants.noise  # (K, 1)

        def combine(outputs: Outputs) -> Tensor:
            scores = discriminants.scores(_seen(outputs))  # (N, C)
            z = torch.stack([known.surprise(f) for known, f in zip(familiar, outputs.features, strict=True)])  # (K, N)
            g = (sureness * scores + discriminants.log_prior).softmax(1)
            log_r = (g @ holders.T).clamp(min=_TINY).log().T
            w = torch.softmax(log_r - steepness * z, dim=0)
            beliefs = outputs.logits / temperature[:, None] + listening[:, None] * scores  # (K, N, C)
            roots = (beliefs / 2).masked_fill(foreign, -torch.inf).softmax(2)
            return 2 * (w[:, :, None] * roots).sum(0).clamp(min=_TINY).log()

        return Predictor(models_of(members), combine, look=_look(members, task))

    return Fusion("routed", fuse, needs=("weights", "common", "turned_familiarity", "reliability"), held_out=True)


class Discriminants:
    """Linear discriminants of all clients' images together, in common features."""

    def __init__(
        self, directions: Tensor, offset: Tensor, log_prior: Tensor, centre: Tensor, held: Tensor, noise: float
    ) -> None:
        self.directions, self.offset, self.log_prior = directions, offset, log_prior  # (D, C), (C,), (C,)
        self.centre = centre  # (D,), taken off features, whose mean may be far larger than what tells classes apart
        self.held = held  # (C,), whether anybody holds the class
        self.noise = noise  # the deviation that a score has because class means come of so many images

    @property
    def device(self) -> torch.device:
        return self.offset.device

    @classmethod
    def of(cls, members: Sequence[Member], ridge: float) -> "Discriminants":
        """From class counts, class means and covariances of the clients, which are read one after the other."""
        device = next(members[0].model.parameters()).device
        counts = torch.tensor([m.upload.header.class_counts for m in members], dtype=torch.float64, device=device)
        total = counts.sum(0)
        sections = (m.upload.section("common") for m in members)
        means = sum(n[:, None] * _class_means(section, n) for n, section in zip(counts, sections, strict=True))
        means = torch.as_tensor(means) / total.clamp(min=1)[:, None]  # (C, D)
        within = torch.zeros(means.shape[1], means.shape[1], dtype=torch.float64, device=device)
        for n, member in zip(counts, members, strict=True):
            section = member.upload.section("common")
            away = _class_means(section, n) - means  # of this client's class means from everybody's
            root = unpack_lower(section["root"].to(n), len(within))
            within += n.sum() * (root @ root.T)
            within += away.T @ (n[:, None] * away)
        within /= total.sum()
        centre = (total[:, None] * means).sum(0) / total.sum()
        means = means - centre
        added = ridge * within.diagonal().sum() / total.sum() + 1e-9
        inverse = torch.linalg.inv(within + added * torch.eye(len(within)).to(within))
        directions = inverse @ means.T  # (D, C)
        offset = -(means.T * directions).sum(0) / 2
        # a class that nobody holds is never the answer, and an infinite logarithm would spoil the others'
        log_prior = (total / total.sum()).clamp(min=_TINY).log()
        # a mean of n_c images is off by N(0, S / n_c), and the score of an image of the class then by N(0, E / n_c)
        # with E = tr((S (S + r)^-1)^2), the dimensions that a ridge r leaves
        left = len(within) - 2 * added * inverse.diagonal().sum() + added**2 * inverse.square().sum()
        noise = math.sqrt(max(float(left), _TINY) * int((total > 0).sum()) / float(total.sum()))
        return cls(directions.float(), offset.float(), log_prior.float(), centre, total > 0, noise)

    def scores(self, seen: Tensor) -> Tensor:
        """m_c^T S^-1 f - m_c^T S^-1 m_c / 2, (N, C), of common features (N, D); all but the same for every class.

        A class that nobody holds has no mean, and the lowest score of the others: the prior decides against it.
        """
        found = (seen - self.centre).float() @ self.directions + self.offset
        lowest = found.masked_fill(~self.held, torch.inf).amin(1, keepdim=True)
        return torch.where(self.held, found, lowest)

    def log_posterior(self, seen: Tensor, confidence: float) -> Tensor:
        """log p(c|x), (N, C), of common features (N, D)."""
        return (confidence * self.scores(seen) + self.log_prior).log_softmax(1)


def _class_means(section: Mapping[str, Tensor], like: Tensor) -> Tensor:
    """A client's class means of common features, (C, D); the centre for a class that it does not hold."""
    return section["centre"].to(like) + section["means"].to(like)


class TurnedFamiliar:
    """How far an image in all its turns lies from what a client knows, against the images that it held back."""

    def __init__(self, means: Tensor, held: Tensor, covariance: Tensor, spread: Tensor) -> None:
        self.means, self.held, self.covariance, self.spread = means, held, covariance, spread

    @classmethod
    def of(cls, member: Member, device: torch.device) -> "TurnedFamiliar":
        section = {name: t.to(device) for name, t in member.upload.section("turned_familiarity").items()}
        held = torch.tensor(member.upload.header.class_counts, device=device) > 0
        covariance = unpack_symmetric(section["covariance"], section["means"].shape[2])
        return cls(section["means"], held, covariance, section["spread"])

    def surprise(self, features: Tensor) -> Tensor:
        """Deviations above what is usual for the client's own images, (N,), of features (N, T · d)."""
        distance = turned_distance(by_turn(features, self.means.shape[1]), self.means, self.held, self.covariance)
        return (distance - self.spread[0]) / self.spread[1]


def separation(familiar: Sequence[TurnedFamiliar], members: Sequence[Member]) -> float:
    """By how many deviations foreign images are further away than familiar ones, as clients judge by their own classes.

    The mean over clients by their images, in [0, 1]: classes that a client was never shown are not as far away as its
    own are from each other. 1 where every client has one class only, and none can know.
    """
    images = [
        m.upload.header.samples if int(known.held.sum()) > 1 else 0 for known, m in zip(familiar, members, strict=True)
    ]
    told = sum(n * float(known.spread[2]) for n, known in zip(images, familiar, strict=True))
    return min(1.0, max(0.0, told / sum(images))) if any(images) else 1.0


class _Look(nn.Module):
    """Prepared images to common features."""

    def __init__(self, features: Look, task: Task) -> None:
        super().__init__()
        self._features, self._task = features, task

    def forward(self, prepared: Tensor) -> Tensor:
        return self._features(self._task.pixels(prepared))


def _look(members: Sequence[Member], task: Task) -> _Look:
    width = members[0].upload.section("common")["means"].shape[1]
    return _Look(common_look(task, width, next(members[0].model.parameters()).device), task)


def _seen(outputs: Outputs) -> Tensor:
    if outputs.seen is None:
        raise TypeError("this rule needs a predictor with a look")
    return outputs.seen
