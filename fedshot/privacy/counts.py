"""Class counts that a client does not tell, or tells with noise; and what a fusion rule then loses."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import reduce

import torch

from fedshot.errors import UploadRefused, UserError
from fedshot.fusion import Fusion, Member
from fedshot.method import Client
from fedshot.partition.validation import share_within
from fedshot.privacy.policy import CountsPolicy, stricter
from fedshot.privacy.randomness import Randomness
from fedshot.privacy.rules import use_of_counts
from fedshot.privacy.told import tells
from fedshot.spec import Spec


def told_counts(client: Client, spec: Spec) -> tuple[tuple[int, ...], int]:
    """The class counts and the number of images that a client's header carries under the policy of the run.

    Withheld counts are a stand-in: the same number for every class, n / C or 1. Noised ones are drawn anew for every
    client, by geometric noise on all of its images, those held out too; their sum stands for the number of images.
    """
    policy, exact = CountsPolicy.parse(spec.counts), client.class_counts
    if policy.exact:
        return exact, sum(exact)
    if policy.kind == "withheld":
        return even(sum(exact), len(exact)), sum(exact)
    # the split into training and held-out images depends on all labels: one image more can move several counts of the
    # training part, but only one of the whole
    held_out = client.validation.labels if client.validation else client.train.labels[:0]
    every = torch.tensor(exact) + torch.bincount(held_out, minlength=len(exact)).cpu()
    noise = Randomness.of(spec, "class counts", client.id).geometric(policy.epsilon, len(exact))
    noised = (every + noise).clamp(min=0)
    share = share_within(spec.validation, int(noised.sum()), spec.validation_most)
    training = (noised * (1 - share)).round().long()
    if training.sum() == 0:
        training[0] = 1  # a message of no images would be refused
    return tuple(training.tolist()), int(training.sum())


def even(samples: int, classes: int) -> tuple[int, ...]:
    """What stands for counts that are withheld: as many images of each class, at least one.

    >>> even(17, 5), even(2, 5)
    ((3, 3, 3, 3, 3), (1, 1, 1, 1, 1))
    """
    return (max(1, round(samples / classes)),) * classes


def revealing(sections: Collection[str]) -> list[str]:
    """Of these sections those that show class counts, or which classes are held, whatever the header says.

    >>> revealing(("weights", "moments", "class_means"))
    ['class_means']
    """
    return [name for name in sections if tells(name).counts]


def sections_told(sections: Collection[str], spec: Spec) -> list[str]:
    """Those of the sections that leave a client under the settings of a run; weights always do."""
    if spec.dp_noise is not None:
        return []  # statistics of images without noise would break the guarantee
    return list(sections) if spec.counts == "exact" else [s for s in sections if s not in revealing(sections)]


def check_counts(spec: Spec, fusion: Fusion, phases: int = 1) -> None:
    """Refuses a rule or a method that cannot do with the counts of this run."""
    if spec.counts == "exact":
        return
    kind = spec.counts.partition(":")[0]
    if hidden := revealing(fusion.needs):
        raise UserError(
            f"counts are {kind}, but fusion {fusion.name} needs the section {hidden[0]}, which shows "
            f"{tells(hidden[0]).counts}: choose another rule, e.g. --fusion features or --fusion logits, or "
            "--set counts=exact"
        )
    if phases == 2:
        raise UserError(
            f"counts are {kind}, but {spec.method} begins with clients that announce theirs exactly: choose a method "
            "of one phase, or --set counts=exact"
        )
    if kind == "withheld" and use_of_counts(spec, fusion) == "decides":
        raise UserError(
            f"counts are withheld, but fusion {spec.fusion or fusion.name} decides by them what is shared, or how rare "
            "a class is: give shared_base a number of stages (shared_base:shared=3), distilled no calibrate, or choose "
            "--set counts=noised:1"
        )


def check_told(counts: str, spec: Spec) -> None:
    """Refuses an upload that tells more of its counts than the run asks for: it would weigh more than the others."""
    if not CountsPolicy.parse(counts).at_least(CountsPolicy.parse(spec.counts)):
        raise UploadRefused(f"its class counts are {counts}, those of the run {spec.counts}")


def told_spec(members: Sequence[Member], spec: Spec, fusion: str) -> Spec:
    """The spec of a run with another rule, and with the strictest policy by which a member told its counts."""
    policies = (member.upload.header.counts for member in members)
    return spec.model_copy(update={"fusion": fusion, "counts": reduce(stricter, policies, "exact")})


def lost(spec: Spec, fusion: Fusion, counts: str) -> str | None:
    """What a rule loses by class counts that are told in this way, in words; None where it loses nothing."""
    if counts == "exact" or use_of_counts(spec, fusion) == "nothing":
        return None
    if counts == "withheld":
        return (
            f"{fusion.name} weighs clients by how many images of a class they hold; counts are withheld, so it weighed "
            "them by all their images: who never saw a class has a vote on it. Counts were not guessed from the heads, "
            "which is the inference that withholding is meant to hinder"
        )
    return (
        f"{fusion.name} weighs clients by how many images of a class they hold; counts carry noise ({counts}): a "
        "client may have a vote on a class that it never saw, or none on one that it hardly holds"
    )


def known_to_the_lab(members: Sequence[Member], counts: Callable[[int], Sequence[int]]) -> Sequence[Member]:
    """The members with their true class counts, for what only the lab scores: the bound of routing, personal accuracy.

    Args:
        counts: of a client by its number; zeros where the server does not know them.
    """
    return [
        m if m.upload.header.counts == "exact" else _with_counts(m, counts(m.upload.header.client)) for m in members
    ]


def _with_counts(member: Member, counts: Sequence[int]) -> Member:
    if not any(counts):
        return member
    header = member.upload.header.model_copy(update={"class_counts": tuple(counts)})
    return Member(replace(member.upload, header=header), member.load)
