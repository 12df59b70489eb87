"""Every fusion rule against a naive loop, on untrained clients that know different classes."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedshot.data.dataset import Dataset
from fedshot.departure import make_upload
from fedshot.fusion import FUSIONS, Member, Predictor, make_fusion
from fedshot.fusion.average import mean_head
from fedshot.fusion.outputs import outputs_of
from fedshot.fusion.votes import _Familiar
from fedshot.fusion.weights import class_counts
from fedshot.local.statistics import evidence_of, sizes_of, statistics
from fedshot.method import Client
from fedshot.models import PrototypeHead, build
from fedshot.sections import STATISTICS
from fedshot.seeds import stream
from fedshot.task import Task
from fedshot.upload import Header

HELD = ((0, 1, 2, 3, 4), (3, 4, 5, 6, 7), (1, 8))  # nobody holds class 9
SIZES = (90, 60, 15)
OF_TURNED_CLIENTS = ("common", "routed", "single")  # with a test of their own
RULES = [
    *(name for name in FUSIONS if not make_fusion(name).public and name not in OF_TURNED_CLIENTS),
    "distilled:images=noise,count=64,passes=1",
    "distilled:images=statistics,count=64,passes=1",
    "features:weights=uniform,scale=unit,prototypes=class_counts",
    "features:weights=sqrt_samples,prototypes=reliability",
    "class_weighted:power=0.5",
    "typicality:familiarity=softmax",
    "typicality:class_power=0,sharpness=1",
    "moments:weights=samples,prototypes=samples",
    "nearest_prototype:weights=uniform",
]


@pytest.fixture(scope="module")
def members(digits: Dataset, task: Task) -> list[Member]:
    return [make_member(k, digits, task) for k in range(3)]


def make_member(number: int, digits: Dataset, task: Task) -> Member:
    """An untrained network whose BatchNorm saw its images, with all statistics of them."""
    mine = torch.isin(digits.train.labels, torch.tensor(HELD[number])).nonzero().squeeze(1)[number::3]
    train, held_out = digits.train[mine[: SIZES[number]]], digits.train[mine[SIZES[number] :][:24]]
    model = build(replace(task, seed=10 + number), PrototypeHead).train()
    with torch.no_grad():
        for _ in range(3):
            model(task.prepare(train.images[:48]))
    model.eval().requires_grad_(False)
    counts = tuple(torch.bincount(train.labels, minlength=10).tolist())
    client = Client(number, task, train, held_out, counts, model, 1, 16)
    header = Header(
        client=number,
        samples=len(train),
        class_counts=counts,
        method="fafi",
        validation_accuracy=(0.8, 0.3, 0.5)[number],
    )
    sections = {
        "weights": model.state_dict(),
        **statistics(evidence_of(client, model, sizes_of(model, task)), STATISTICS),
    }
    return Member(make_upload(header, sections), lambda: model)


@pytest.fixture(scope="module")
def images(digits: Dataset, task: Task) -> Tensor:
    return task.prepare(digits.test.images[:40])


@pytest.fixture(scope="module")
def fused(members: list[Member], task: Task) -> Callable[[str], Predictor]:
    return lambda text: make_fusion(text).fuse(members, task)


def raw(members: list[Member], images: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Features (K, N, d) and probabilities (K, N, C) in double precision."""
    said = outputs_of([m.model for m in members], images)
    logits = said.logits.double().numpy()
    odds = np.exp(logits - logits.max(2, keepdims=True))
    return said.features.double().numpy(), odds / odds.sum(2, keepdims=True)


def prototypes(members: list[Member]) -> np.ndarray:
    return np.mean([m.model.head.prototypes.double().numpy() for m in members], axis=0)


def by_prototypes(summed: np.ndarray, members: list[Member]) -> np.ndarray:
    return np.stack([f / np.linalg.norm(f) @ prototypes(members).T for f in summed])


def close(found: Tensor, expected: np.ndarray, rtol: float = 1e-4, atol: float = 1e-4) -> None:
    np.testing.assert_allclose(found.double().numpy(), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("weights", ["samples", "sqrt_samples", "uniform"])
@pytest.mark.parametrize("scale", ["raw", "unit"])
def test_features(
    weights: str, scale: str, members: list[Member], images: Tensor, fused: Callable[[str], Predictor]
) -> None:
    h, _ = raw(members, images)
    share = {"samples": np.array(SIZES), "sqrt_samples": np.sqrt(SIZES), "uniform": np.ones(3)}[weights]
    summed = np.zeros_like(h[0])
    for k in range(3):
        for n in range(len(images)):
            f = h[k, n] / np.linalg.norm(h[k, n]) if scale == "unit" else h[k, n]
            summed[n] += share[k] / share.sum() * f
    close(fused(f"features:weights={weights},scale={scale}")(images), by_prototypes(summed, members))


@pytest.mark.parametrize("weights", ["samples", "sqrt_samples", "uniform"])
def test_logits_and_probabilities(
    weights: str, members: list[Member], images: Tensor, fused: Callable[[str], Predictor]
) -> None:
    _, p = raw(members, images)
    share = {"samples": np.array(SIZES), "sqrt_samples": np.sqrt(SIZES), "uniform": np.ones(3)}[weights]
    share = share / share.sum()
    close(fused(f"probabilities:weights={weights}")(images).exp(), sum(w * q for w, q in zip(share, p, strict=True)))
    z = [m.model(images).double().numpy() for m in members]
    close(fused(f"logits:weights={weights}")(images), sum(w * q for w, q in zip(share, z, strict=True)))


@pytest.mark.parametrize("power", [1.0, 0.5, 0.0])
def test_class_weighted(power: float, members: list[Member], images: Tensor, fused: Callable[[str], Predictor]) -> None:
    _, p = raw(members, images)
    scores = np.zeros_like(p[0])
    for n in range(len(images)):
        for y in range(10):
            counts = [m.upload.header.class_counts[y] for m in members]
            held = [count**power if count else 0.0 for count in counts]
            for k in range(3):
                share = held[k] / sum(held) if sum(held) else 1 / 3
                scores[n, y] += share * p[k, n, y]
    close(fused(f"class_weighted:power={power}")(images).exp(), scores)


def test_class_counts_are_shares_of_a_class(members: list[Member]) -> None:
    found = class_counts(members)
    torch.testing.assert_close(found.sum(0), torch.ones(10))
    assert found[:, 8].tolist() == [0, 0, 1]
    torch.testing.assert_close(found[:, 9], torch.full((3,), 1 / 3))


def distances_to_classes(member: Member, features: np.ndarray) -> np.ndarray:
    """Squared Mahalanobis distance to the nearest class that the client holds, (N,)."""
    section = {name: t.double().numpy() for name, t in member.upload.section("familiarity").items()}
    covariance = section["covariance"]
    spread = max(np.trace(covariance) / len(covariance), 1e-8)
    inverse = np.linalg.inv(0.9 * covariance + 0.1 * spread * np.eye(len(covariance)))
    held = [y for y, count in enumerate(member.upload.header.class_counts) if count]
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    found = []
    for f in units:
        found.append(min((f - section["means"][y]) @ inverse @ (f - section["means"][y]) for y in held))
    return np.array(found)


@pytest.mark.parametrize(
    ("kind", "sharpness", "power"),
    [("rank", 2.0, 1.0), ("rank", 1.0, 0.0), ("softmax", 2.0, 1.0), ("softmax", 3.0, 0.5)],
)
def test_typicality(
    kind: str, sharpness: float, power: float, members: list[Member], images: Tensor, fused: Callable[[str], Predictor]
) -> None:
    h, p = raw(members, images)
    far = np.stack([distances_to_classes(member, h[k]) for k, member in enumerate(members)])  # (K, N)
    own = [member.upload.section("familiarity")["distances"].double().numpy() for member in members]
    familiar = np.zeros_like(far)
    for n in range(len(images)):
        if kind == "rank":
            familiar[:, n] = [((1 + (own[k] > far[k, n]).sum()) / (1 + len(own[k]))) ** sharpness for k in range(3)]
        else:
            z = np.array([(np.log(far[k, n]) - np.log(own[k]).mean()) / np.log(own[k]).std() for k in range(3)])
            familiar[:, n] = np.exp(-sharpness / 2 * z) / np.exp(-sharpness / 2 * z).sum()
    scores = np.zeros_like(p[0])
    for n in range(len(images)):
        for y in range(10):
            held = [c**power if (c := m.upload.header.class_counts[y]) else 0.0 for m in members]
            for k in range(3):
                scores[n, y] += familiar[k, n] * (held[k] / sum(held) if sum(held) else 1 / 3) * p[k, n, y]
    assert familiar.std(0).max() > 0.05  # the clients do differ
    text = f"typicality:familiarity={kind},sharpness={sharpness},class_power={power}"
    close(fused(text)(images).exp(), scores, rtol=2e-3)


@pytest.mark.parametrize("weights", ["samples", "sqrt_samples"])
def test_moments(weights: str, members: list[Member], images: Tensor, fused: Callable[[str], Predictor]) -> None:
    h, _ = raw(members, images)
    share = np.array(SIZES) if weights == "samples" else np.sqrt(SIZES)
    summed = np.zeros_like(h[0])
    for k, member in enumerate(members):
        mean, std = (member.upload.section("moments")[name].double().numpy() for name in ("mean", "std"))
        for n in range(len(images)):
            summed[n] += share[k] / share.sum() * (h[k, n] - mean) / np.maximum(std, 1e-6)
    close(fused(f"moments:weights={weights}")(images), by_prototypes(summed, members), atol=2e-3)


def test_batch_moments_reads_the_test_images_and_says_so(
    members: list[Member], images: Tensor, fused: Callable[[str], Predictor]
) -> None:
    h, _ = raw(members, images)
    share = np.sqrt(SIZES) / np.sqrt(SIZES).sum()
    z = (h - h.mean(1, keepdims=True)) / np.maximum(h.std(1, keepdims=True), 1e-6)
    predictor = fused("batch_moments")
    close(predictor(images), by_prototypes(np.einsum("k,knd->nd", share, z), members), atol=2e-3)
    assert not predictor.inductive
    assert not make_fusion("batch_moments").inductive
    assert not torch.allclose(predictor(images[:20]), predictor(images)[:20], atol=1e-2)


def unlikeness(members: list[Member], images: Tensor, task: Task, draws: int) -> np.ndarray:
    """u_k(x), (K, N)."""
    noise = torch.randn(draws, *task.shape, generator=stream(task.seed, "noise"))
    h, _ = raw(members, images)
    noisy, _ = raw(members, noise)
    found = np.zeros(h.shape[:2])
    for k in range(len(members)):
        for n in range(len(images)):
            cosines = [h[k, n] @ m / np.linalg.norm(h[k, n]) / np.linalg.norm(m) for m in noisy[k]]
            found[k, n] = np.mean([1 - cosine for cosine in cosines])
    return found


@pytest.mark.parametrize("draws", [8, 64])
def test_noise_informed_weighs_each_client_and_image(
    draws: int, members: list[Member], images: Tensor, task: Task, fused: Callable[[str], Predictor]
) -> None:
    h, _ = raw(members, images)
    u = unlikeness(members, images, task, draws)
    assert (u.std(0) / u.mean(0)).min() > 0.002  # from client to client, for every image
    assert (u.std(1) / u.mean(1)).min() > 0.002  # from image to image, for every client
    scores = fused(f"noise_informed:draws={draws}")(images)
    close(scores, by_prototypes(np.einsum("kn,knd->nd", u, h), members), atol=1e-3)
    shared = by_prototypes(np.einsum("n,knd->nd", u.mean(0), h), members)
    assert np.abs(scores.numpy() - shared).max() > 0.01


def test_released_is_the_plain_sum_of_features(
    members: list[Member], images: Tensor, fused: Callable[[str], Predictor]
) -> None:
    released, plain = fused("released")(images), fused("features:weights=uniform,scale=raw")(images)
    assert torch.equal(released.argmax(1), plain.argmax(1))
    torch.testing.assert_close(released, plain, rtol=1e-4, atol=1e-4)


def test_nearest_prototype(members: list[Member], images: Tensor, fused: Callable[[str], Predictor]) -> None:
    h, _ = raw(members, images)
    share = np.array(SIZES) / sum(SIZES)
    summed = np.einsum("k,knd->nd", share, h)
    means = [m.upload.section("class_means")["means"].double().numpy() for m in members]
    scores = fused("nearest_prototype")(images)
    for y in range(9):
        counts = np.array([m.upload.header.class_counts[y] for m in members])
        prototype = sum(n * m[y] for n, m in zip(counts, means, strict=True)) / counts.sum()
        close(scores[:, y], -((summed - prototype) ** 2).sum(1), rtol=1e-3, atol=1e-3)


def test_a_class_that_nobody_holds_never_wins_however_far_the_others_are(
    members: list[Member], images: Tensor, task: Task
) -> None:
    means = "class_means/means"
    far = [
        replace(m, upload=replace(m.upload, tensors={**m.upload.tensors, means: m.upload.tensors[means] + 50}))
        for m in members
    ]
    scores = make_fusion("nearest_prototype").fuse(far, task)(images)
    assert scores[:, :9].max() < -1e5
    assert (scores[:, 9] < scores[:, :9].amin(1)).all()
    assert scores.isfinite().all()


@pytest.mark.parametrize(
    "text",
    [
        "features",
        "features:scale=unit",
        "noise_informed",
        "released",
        "logits",
        "probabilities",
        "class_weighted",
        "typicality",
        "average",
        "otfusion",
    ],
)
def test_one_member_decides_as_it_does_alone(text: str, members: list[Member], images: Tensor, task: Task) -> None:
    alone = members[0].model(images).argmax(1)
    assert len(alone.unique()) > 1
    assert torch.equal(make_fusion(text).fuse(members[:1], task)(images).argmax(1), alone)


@pytest.mark.parametrize("text", RULES)
def test_the_order_of_members_does_not_matter(text: str, members: list[Member], images: Tensor, task: Task) -> None:
    rule = make_fusion(text)
    one, other = rule.fuse(members, task)(images), rule.fuse([members[2], members[0], members[1]], task)(images)
    torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("text", [text for text in RULES if make_fusion(text).inductive])
def test_an_image_is_scored_alike_in_any_company(text: str, images: Tensor, fused: Callable[[str], Predictor]) -> None:
    predictor = fused(text)
    whole = predictor(images)
    assert predictor.inductive
    assert whole.shape == (40, 10)
    assert whole.isfinite().all()
    torch.testing.assert_close(torch.cat([predictor(images[:7]), predictor(images[7:])]), whole, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(predictor(images[3:4]), whole[3:4], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("text", RULES)
def test_a_rule_reads_the_sections_that_it_names_and_no_other(
    text: str, members: list[Member], images: Tensor, task: Task
) -> None:
    rule = make_fusion(text)
    sent = [replace(m, upload=m.upload.only(rule.needs)) for m in members]
    assert torch.equal(rule.fuse(sent, task)(images), rule.fuse(members, task)(images))
    assert rule.name == text.partition(":")[0]


def test_the_head_of_the_fusion_is_no_members_head(members: list[Member]) -> None:
    head = mean_head(members, "uniform")
    assert all(head is not m.model.head for m in members)


def test_the_rank_of_an_image_counts_only_held_out_images_that_lie_strictly_further() -> None:
    known = _Familiar(torch.zeros(1, 1), torch.tensor([True]), torch.eye(1), torch.tensor([1.0, 2.0, 2.0, 3.0]))
    found = known.rank(torch.tensor([0.5, 1.0, 2.0, 2.5, 3.0, 99.0]))
    torch.testing.assert_close(found, torch.tensor([5.0, 4.0, 2.0, 2.0, 1.0, 1.0]) / 5)
