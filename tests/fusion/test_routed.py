"""The rules `common` and `routed`: sums over clients are exact, both are their formula, and what the server refuses."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedshot.data.dataset import Dataset, Labelled
from fedshot.departure import make_upload
from fedshot.errors import UploadRefused, UserError
from fedshot.fusion import Member, make_fusion
from fedshot.fusion.interview import Interview
from fedshot.fusion.memory import ASKED_BYTES
from fedshot.fusion.outputs import outputs_of
from fedshot.fusion.routed import Discriminants, TurnedFamiliar, separation
from fedshot.local.familiarity import turned_distance, turned_familiarity
from fedshot.local.statistics import evidence_of, sizes_of, statistics
from fedshot.local.work import upload_of
from fedshot.method import Client
from fedshot.methods.recommended import turned_model
from fedshot.models import Classifier, PrototypeHead, build, unit
from fedshot.models.common import CommonFeatures
from fedshot.precision import pack
from fedshot.prepare import prepare
from fedshot.sections import ROUTING, STATISTICS
from fedshot.server import Reception, lacking_section
from fedshot.setting import Setting
from fedshot.spec import Precision, Spec
from fedshot.stored import read
from fedshot.symmetric import pack_lower, unpack_symmetric
from fedshot.task import Task
from fedshot.upload import Header, Upload

HELD = ((0, 1, 2, 3, 4), (3, 4, 5, 6, 7), (1, 8))  # nobody holds class 9
SIZES = (200, 190, 60)
WIDTH = 368  # of common features, for a CNN and ten classes
RULES = ["common", "routed", "routed:sharpness=3,confidence=1,share=0", "common:ridge=1,confidence=1"]


@pytest.fixture(scope="module")
def of_characters(task: Task) -> Task:
    return replace(task, augmentation="characters")


@pytest.fixture(scope="module")
def parts(digits: Dataset) -> list[tuple[Labelled, Labelled]]:
    """Of each client the images that it trains on, and those that it holds back."""
    found = []
    for k in range(3):
        mine = torch.isin(digits.train.labels, torch.tensor(HELD[k])).nonzero().squeeze(1)[k::3]
        found.append((digits.train[mine[: SIZES[k]]], digits.train[mine[SIZES[k] :][:24]]))
    return found


@pytest.fixture(scope="module")
def members(parts: list[tuple[Labelled, Labelled]], of_characters: Task) -> list[Member]:
    return [make_member(k, *parts[k], of_characters) for k in range(3)]


def make_member(number: int, train: Labelled, held_out: Labelled | None, task: Task) -> Member:
    """An untrained network whose BatchNorm saw its images, with what a client of `recommended` sends."""
    model = turned_model(replace(task, seed=10 + number)).train()
    with torch.no_grad():
        for _ in range(3):
            model.encoder(task.prepare(train.images[:48]))
    model.eval().requires_grad_(False)
    counts = tuple(torch.bincount(train.labels, minlength=10).tolist())
    client = Client(number, task, train, held_out, counts, model, 1, 16)
    header = Header(client=number, samples=len(train), class_counts=counts, method="recommended")
    sections = {"weights": model.state_dict(), **statistics(evidence_of(client, model, sizes_of(model, task)), ROUTING)}
    return Member(make_upload(header, sections), lambda: model)


@pytest.fixture(scope="module")
def images(digits: Dataset, of_characters: Task) -> Tensor:
    return of_characters.prepare(digits.test.images[:40])


@pytest.fixture(scope="module")
def seen(digits: Dataset) -> Tensor:
    """Common features of the same images."""
    return CommonFeatures((1, 8, 8), WIDTH, mirrored=False)(digits.test.images[:40] / 255)


def altered(member: Member, section: str, name: str, value: Tensor) -> Member:
    return replace(member, upload=replace(member.upload, tensors={**member.upload.tensors, f"{section}/{name}": value}))


def exact(member: Member, data: Labelled) -> Member:
    """The member with statistics of common features that were not rounded to half precision."""
    features = CommonFeatures((1, 8, 8), WIDTH, mirrored=False)(data.images / 255).double()
    means = torch.zeros(10, WIDTH, dtype=torch.float64)
    for c in data.labels.unique():
        means[c] = features[data.labels == c].mean(0)
    centred = features - means[data.labels]
    member = altered(altered(member, "common", "means", means), "common", "centre", torch.zeros(WIDTH))
    root = torch.linalg.cholesky(centred.T @ centred / len(data) + 1e-10 * torch.eye(WIDTH))
    return altered(member, "common", "root", pack_lower(root))


def test_statistics_of_clients_add_up_to_those_of_all_images_in_one_place(
    parts: list[tuple[Labelled, Labelled]], members: list[Member], of_characters: Task, seen: Tensor
) -> None:
    trained = [train for train, _ in parts]
    everything = Labelled(torch.cat([t.images for t in trained]), torch.cat([t.labels for t in trained]))
    one = make_member(0, everything, None, of_characters)
    apart, together = Discriminants.of(members, 0.2), Discriminants.of([one], 0.2)
    torch.testing.assert_close(apart.log_prior, together.log_prior)
    found, expected = (d.log_posterior(seen, 0.5)[:, :9] for d in (apart, together))
    torch.testing.assert_close(found.exp(), expected.exp(), rtol=0, atol=0.05)  # sent in half precision
    assert torch.equal(found.argmax(1), expected.argmax(1))
    members = [exact(member, data) for member, data in zip(members, trained, strict=True)]
    apart, together = Discriminants.of(members, 0.2), Discriminants.of([exact(one, everything)], 0.2)
    for found, expected in ((apart.directions, together.directions), (apart.offset, together.offset)):
        assert (found - expected).norm() < 1e-4 * expected.norm()


def test_where_features_lie_does_not_matter(members: list[Member], seen: Tensor) -> None:
    """Up to what single precision leaves of them."""
    far = 2.0**12
    moved = [altered(m, "common", "centre", m.upload.section("common")["centre"] + far) for m in members]
    plain, found = Discriminants.of(members, 0.2), Discriminants.of(moved, 0.2)
    apart = (found.directions - plain.directions)[:, plain.held]
    assert apart.norm() < 1e-2 * plain.directions[:, plain.held].norm()
    expected = plain.log_posterior(seen, 0.5)[:, :9]
    torch.testing.assert_close(found.log_posterior(seen + far, 0.5)[:, :9].exp(), expected.exp(), rtol=0, atol=0.05)


def test_nobody_s_class_is_not_the_answer_of_few_images(digits: Dataset, of_characters: Task) -> None:
    """Even where images are few, features many, and an image is unlike any that was seen."""
    held = torch.cat([torch.nonzero(digits.train.labels == c)[:12, 0] for c in range(5)])
    few = Labelled(digits.train.images[held], digits.train.labels[held])
    discriminants = Discriminants.of([make_member(0, few, None, of_characters)], 0.2)
    look, pixels = CommonFeatures((1, 8, 8), WIDTH, mirrored=False), digits.test.images[:200] / 255
    noise = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    grey = torch.linspace(0, 1, 9)[:, None, None, None].expand(-1, 1, 8, 8)
    for images in (pixels, noise, (pixels + pixels.flip(0)) / 2, grey):
        for confidence in (0.0, 0.5, 1.0):
            answers = discriminants.log_posterior(look(images), confidence)
            assert answers.isfinite().all() and int(answers.argmax(1).max()) < 5


def of_all(data: list[Labelled]) -> tuple[np.ndarray, np.ndarray]:
    """Common features and labels of all images in one place, in double precision."""
    look = CommonFeatures((1, 8, 8), WIDTH, mirrored=False)
    features = np.concatenate([look(d.images / 255).double().numpy() for d in data])
    return features, np.concatenate([d.labels.numpy() for d in data])


def covariance_of(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The covariance within classes, class by class."""
    within = np.zeros((WIDTH, WIDTH))
    for c in range(9):
        own = features[labels == c]
        within += (own - own.mean(0)).T @ (own - own.mean(0)) / len(features)
    return within


def posterior(data: list[Labelled], seen: Tensor, ridge: float, confidence: float) -> np.ndarray:
    """Linear discriminant analysis of all images in one place, class by class and in double precision."""
    features, labels = of_all(data)
    means, within = [features[labels == c].mean(0) for c in range(9)], covariance_of(features, labels)
    within += (ridge * np.trace(within) / len(features) + 1e-9) * np.eye(WIDTH)
    inverse = np.linalg.inv(within)
    scores = np.full((len(seen), 10), -np.inf)
    for n, f in enumerate(seen.double().numpy()):
        for c in range(9):
            fit = means[c] @ inverse @ f - means[c] @ inverse @ means[c] / 2
            scores[n, c] = confidence * fit + np.log((labels == c).mean())
    odds = np.exp(scores - scores.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def test_whatever_the_ridge_scores_are_numbers(members: list[Member], images: Tensor, of_characters: Task) -> None:
    for ridge in ("0", "1e8", "1e10", "1e12"):
        scores = make_fusion(f"routed:ridge={ridge}").fuse(members, of_characters)(images)
        assert scores.isfinite().all(), ridge


def error_of_scores(data: list[Labelled], ridge: float) -> float:
    """The deviation of a score, with so many images of each of the nine classes, in the dimensions that are left."""
    features, labels = of_all(data)
    variances = np.linalg.eigvalsh(covariance_of(features, labels))
    left = variances / (variances + ridge * variances.sum() / len(labels))
    return math.sqrt((left**2).sum() * 9 / len(labels))


def close(found: Tensor, expected: np.ndarray, atol: float) -> None:
    np.testing.assert_allclose(found.double().numpy(), expected, atol=atol)


@pytest.mark.parametrize(("ridge", "confidence"), [(0.003, 0.02), (0.2, 0.1)])
def test_common_is_linear_discriminant_analysis(
    ridge: float,
    confidence: float,
    parts: list[tuple[Labelled, Labelled]],
    members: list[Member],
    images: Tensor,
    seen: Tensor,
    of_characters: Task,
) -> None:
    trained = [train for train, _ in parts]
    members = [exact(member, data) for member, data in zip(members, trained, strict=True)]
    predictor = make_fusion(f"common:ridge={ridge},confidence={confidence}").fuse(members, of_characters)
    assert len(predictor.models) == 0 and predictor.inductive
    expected = posterior(trained, seen, ridge, confidence)
    assert 0.1 < expected.max(1).min() < 0.9  # some images are in doubt
    close(predictor(images).softmax(1), expected, atol=1e-3)


def surprise(member: Member, image_features: np.ndarray) -> float:
    """z_k of one image: features of its four turns, (4, d), of norm 1 each."""
    section = {name: t.double() for name, t in member.upload.section("turned_familiarity").items()}
    width = image_features.shape[1]
    covariance = unpack_symmetric(section["covariance"], width).numpy()
    shrunk = 0.9 * covariance + 0.1 * np.trace(covariance) / width * np.eye(width)
    inverse, means = np.linalg.inv(shrunk), section["means"].numpy()
    held = [c for c, count in enumerate(member.upload.header.class_counts) if count]
    logs = []
    for turn, f in enumerate(image_features):
        far = [(f - means[c, turn]) @ inverse @ (f - means[c, turn]) for c in held]
        logs.append(np.log(min(far)))
    mean, deviation, _ = section["spread"].tolist()
    return (float(np.mean(logs)) - mean) / deviation


@pytest.mark.parametrize(("sharpness", "confidence", "share"), [(1.0, 0.15, 1.5), (2.0, 0.5, 0.0), (0.0, 0.15, 3.0)])
def test_routed_is_its_formula(
    sharpness: float,
    confidence: float,
    share: float,
    parts: list[tuple[Labelled, Labelled]],
    members: list[Member],
    images: Tensor,
    seen: Tensor,
    of_characters: Task,
) -> None:
    images, trained = images[:12], [train for train, _ in parts]
    members = [exact(member, data) for member, data in zip(members, trained, strict=True)]
    counts = np.array([m.upload.header.class_counts for m in members], dtype=float)
    expected, weights = np.zeros((12, 10)), np.zeros((12, 3))
    told = [m.upload.section("turned_familiarity")["spread"][2].item() for m in members]
    apart = min(1.0, float(np.average(told, weights=counts.sum(1))))
    assert apart > 0
    sureness = confidence**apart * 0.5 ** (1 - apart)
    g, plain = (posterior(trained, seen[:12], 0.2, how_sure) for how_sure in (sureness, 0.01))
    noise = error_of_scores(trained, 0.2)
    for n in range(12):
        turned = [torch.rot90(images[n], turn, (1, 2))[None] for turn in range(4)]
        answers = []
        for k, member in enumerate(members):
            h = [unit(member.model.encoder(view)).double().numpy()[0] for view in turned]
            prototypes = member.model.head.get_parameter("prototypes").double().numpy()
            z = np.array([np.mean([h[t] @ prototypes[4 * c + t] for t in range(4)]) for c in range(10)])
            held = counts[k] > 0
            t, e = (member.upload.section("reliability")[name].item() for name in ("temperature", "error"))
            fits = np.log(plain[n, :9] / counts.sum(0)[:9]) / 0.01  # linear scores, up to a constant
            odds = np.exp((z[:9] / t + share * e * (fits - fits.max()) / noise) / 2) * held[:9]
            answers.append(np.append(odds / odds.sum(), 0))
            r = sum(g[n, c] * counts[k, c] / counts[:, c].sum() for c in range(9))
            weights[n, k] = r * np.exp(-sharpness * apart * surprise(member, np.stack(h)))
        weights[n] /= weights[n].sum()
        expected[n] = sum(w * p for w, p in zip(weights[n], answers, strict=True)) ** 2
    predictor = make_fusion(f"routed:sharpness={sharpness},confidence={confidence},share={share}")
    found = predictor.fuse(members, of_characters)(images).exp()
    assert weights.std(1).max() > 0.1  # the clients do differ
    assert (found[:, 9] < 0.01 * found.amax(1)).all()  # a class that nobody holds: as good as nothing
    found, expected = found[:, :9], expected[:, :9]
    close(found / found.sum(1, keepdim=True), expected / expected.sum(1, keepdims=True), atol=5e-3)


def test_common_features_are_heard_in_units_of_their_own_error(
    parts: list[tuple[Labelled, Labelled]],
    members: list[Member],
    images: Tensor,
    of_characters: Task,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained = [train for train, _ in parts]
    known = Discriminants.of([exact(m, data) for m, data in zip(members, trained, strict=True)], 0.2)
    assert known.noise == pytest.approx(error_of_scores(trained, 0.2), rel=1e-3)
    assert 0.1 < known.noise / math.sqrt(WIDTH * 9 / sum(map(len, trained))) < 0.9  # the ridge leaves some dimensions

    def answers(share: float, noise: float) -> Tensor:
        told = Discriminants(known.directions, known.offset, known.log_prior, known.centre, known.held, noise)
        monkeypatch.setattr(Discriminants, "of", lambda members, ridge: told)
        return make_fusion(f"routed:share={share}").fuse(members, of_characters)(images).softmax(1)

    torch.testing.assert_close(answers(share=1, noise=2), answers(share=5, noise=10))
    assert (answers(share=1, noise=2) - answers(share=1, noise=10)).abs().max() > 0.01


def test_common_features_choose_alone_where_familiarity_is_worth_nothing(
    members: list[Member], images: Tensor, of_characters: Task
) -> None:
    def answers(separation: float, confidence: float) -> Tensor:
        spread = [m.upload.section("turned_familiarity")["spread"] for m in members]
        told = [
            altered(m, "turned_familiarity", "spread", torch.tensor([*s[:2].tolist(), separation]))
            for m, s in zip(members, spread, strict=True)
        ]
        return make_fusion(f"routed:confidence={confidence},sharpness=0").fuse(told, of_characters)(images).softmax(1)

    torch.testing.assert_close(answers(0.0, confidence=0.01), answers(0.0, confidence=4))
    torch.testing.assert_close(answers(0.0, confidence=4), answers(1.0, confidence=0.5))
    torch.testing.assert_close(answers(0.5, confidence=0.02), answers(1.0, confidence=0.1))
    assert (answers(1.0, confidence=0.01) - answers(1.0, confidence=4)).abs().max() > 0.01


def test_who_errs_more_listens_more_to_common_features(
    members: list[Member], images: Tensor, of_characters: Task
) -> None:
    def answers(error: float, share: float) -> Tensor:
        told = [altered(m, "reliability", "error", torch.tensor([error])) for m in members]
        return make_fusion(f"routed:share={share}").fuse(told, of_characters)(images).softmax(1)

    torch.testing.assert_close(answers(error=0.0, share=0.5), answers(error=1.0, share=0.0))
    torch.testing.assert_close(answers(error=0.01, share=2.0), answers(error=1.0, share=0.02))
    assert (answers(error=0.01, share=2.0) - answers(error=0.0, share=2.0)).abs().max() > 0.01


def test_only_who_holds_a_class_is_asked_about_it(members: list[Member], seen: Tensor, of_characters: Task) -> None:
    predictor = make_fusion("routed:confidence=1000,sharpness=0,share=0").fuse(members, of_characters)
    discriminants = Discriminants.of(members, 0.2)
    sure = discriminants.log_posterior(seen, 1000).argmax(1) == 8  # which only the last client holds
    assert sure.any()
    noise = torch.Generator().manual_seed(1)
    features = unit(torch.randn(3, int(sure.sum()), 4, 512, generator=noise)).flatten(2) / 2
    logits = torch.randn(3, int(sure.sum()), 10, generator=noise)
    said = replace(outputs_of([], seen), features=features, logits=logits, seen=seen[sure])
    own = logits[2][:, [1, 8]] / members[2].upload.section("reliability")["temperature"]
    torch.testing.assert_close(predictor.combine(said).softmax(1)[:, [1, 8]], own.softmax(1))


def test_a_class_that_nobody_holds_is_never_the_answer(
    members: list[Member], images: Tensor, of_characters: Task
) -> None:
    for text in ("common", "routed"):
        scores = make_fusion(text).fuse(members, of_characters)(images)
        assert scores.isfinite().all()
        assert (scores.argmax(1) != 9).all()


@pytest.mark.parametrize("text", RULES)
def test_neither_company_nor_order_matters_and_only_named_sections_are_read(
    text: str, members: list[Member], images: Tensor, of_characters: Task
) -> None:
    rule = make_fusion(text)
    sent = [replace(m, upload=m.upload.only(rule.needs)) for m in members]
    whole = rule.fuse(sent, of_characters)(images)
    assert whole.shape == (40, 10) and torch.equal(whole, rule.fuse(members, of_characters)(images))
    predictor = rule.fuse([members[2], members[0], members[1]], of_characters)
    torch.testing.assert_close(predictor(images), whole, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(torch.cat([predictor(images[:1]), predictor(images[1:])]), whole, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("asked", [0, 1_000_000, 10**9])
def test_a_look_sees_the_pixels_whatever_the_size_of_a_group(
    asked: int,
    members: list[Member],
    images: Tensor,
    seen: Tensor,
    digits: Dataset,
    of_characters: Task,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(ASKED_BYTES, "cpu", asked)
    predictors = {text: make_fusion(text).fuse(members, of_characters) for text in ("common", "routed")}
    panels = {name: (p.models, p.look) for name, p in predictors.items()}
    interview = Interview(panels, digits.test.images[:40], of_characters)
    whole = outputs_of(predictors["routed"].models, images, predictors["routed"].look)
    for name, models in (("common", 0), ("routed", 3)):
        said = [outputs for _, every in interview.with_all() for outputs in [every[name]]]
        assert {len(outputs.features) for outputs in said} == {models}
        found = torch.cat([outputs.seen for outputs in said if outputs.seen is not None])
        torch.testing.assert_close(found, seen, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(torch.cat([o.logits for o in said], 1), whole.logits, rtol=1e-4, atol=1e-4)
    assert outputs_of([], images).seen is None


@pytest.mark.parametrize("normalisation", ["alike", "views", "twice"])
def test_a_look_sees_the_pixels_whatever_the_normalisation(
    normalisation: Any, members: list[Member], seen: Tensor, digits: Dataset, of_characters: Task
) -> None:
    task = replace(of_characters, normalisation=normalisation)
    look = make_fusion("common").fuse(members, task).look
    assert look is not None
    torch.testing.assert_close(look(task.prepare(digits.test.images[:40])), seen, rtol=1e-3, atol=1e-3)


def test_rules_say_what_they_need() -> None:
    rules = [make_fusion(text) for text in ("common", "routed")]
    assert [rule.needs for rule in rules] == [("common",), ("weights", "common", "turned_familiarity", "reliability")]
    assert [rule.held_out for rule in rules] == [False, True]


@pytest.mark.parametrize("held_back", [0, 1])
def test_a_client_that_could_not_test_itself_says_so_and_takes_part(
    held_back: int, parts: list[tuple[Labelled, Labelled]], members: list[Member], of_characters: Task
) -> None:
    train, held_out = parts[0]
    short = make_member(0, train, held_out[torch.arange(held_back)] if held_back else None, of_characters)
    assert short.upload.sections == members[0].upload.sections
    familiar, model = TurnedFamiliar.of(short, torch.device("cpu")), short.model
    tested = held_out[torch.arange(1)] if held_back else train  # its own images stand in for those held back
    with torch.no_grad():
        z = familiar.surprise(model.features(of_characters.prepare(tested.images)))
    assert float(z.mean()) == pytest.approx(0, abs=1e-2)
    if held_back:  # one image says where to expect another, and nothing of how they vary
        assert float(familiar.spread[1]) == pytest.approx(0.3 * math.sqrt(2))
    else:
        assert float(z.std()) == pytest.approx(1, rel=0.05) and float(familiar.spread[2]) == 0
    told = short.upload.section("reliability")
    if held_back:  # right or wrong once
        assert any(float(told["error"]) == pytest.approx(wrong / 3) for wrong in (1, 2))
    else:
        assert (float(told["error"]), float(told["temperature"])) == pytest.approx((0.5, 1))
    scores = make_fusion("routed").fuse([short, *members[1:]], of_characters)(of_characters.prepare(train.images[:9]))
    assert scores.isfinite().all()


def test_a_client_of_a_single_image_takes_part(
    parts: list[tuple[Labelled, Labelled]], members: list[Member], of_characters: Task
) -> None:
    train, _ = parts[0]
    alone = make_member(0, train[torch.arange(1)], None, of_characters)
    held, content = torch.zeros(10).bool(), alone.upload.section("turned_familiarity")
    assert content["spread"].tolist()[1:] == pytest.approx([0.3 * math.sqrt(2), 0.0])
    assert ROUTING["turned_familiarity"].complaint(content, held) is None
    scores = make_fusion("routed").fuse([alone, *members[1:]], of_characters)(of_characters.prepare(train.images[:9]))
    assert scores.isfinite().all()


def test_who_sent_no_familiarity_is_named(members: list[Member]) -> None:
    short = replace(members[0], upload=members[0].upload.only(("weights", "common", "reliability")))
    said = lacking_section([short, *members[1:]], make_fusion("routed"))
    assert said == "client 0 sent no turned_familiarity: fuse the others by --without 0"
    assert lacking_section([short], make_fusion("routed")) == (
        "the uploads carry no turned_familiarity: train with --validation 0.1"
    )


def test_a_run_without_held_out_images_is_refused_before_training(quick: Callable[..., Spec]) -> None:
    with pytest.raises(UserError, match=r"fusion routed needs held-out images of every client: add --validation 0\.1"):
        prepare(quick("recommended", validation=0))
    assert prepare(quick("recommended", validation=0, fusion="common")).fusion.name == "common"


def test_a_tight_client_is_described_as_well_as_a_wide_one() -> None:
    draw = torch.Generator().manual_seed(2)
    labels = torch.arange(200) % 4
    centres = unit(torch.randn(4, 2, 32, generator=draw))
    found = []
    for scale in (0.1, 1e-3, 1e-4):  # features this close to their class mean
        noise = torch.Generator().manual_seed(3)
        features = centres[labels] + scale * torch.randn(200, 2, 32, generator=noise)
        found.append(turned_familiarity(features, labels, features[::3] + 0.0, labels[::3], 4))
        assert ROUTING["turned_familiarity"].complaint(found[-1], torch.ones(4, dtype=torch.bool)) is None
        means = torch.stack([unit(features[labels == c]).mean(0) for c in range(4)])
        torch.testing.assert_close(found[-1]["means"], means.half(), rtol=1e-3, atol=1e-6)
    for other in found[1:]:
        torch.testing.assert_close(other["covariance"], found[0]["covariance"], rtol=0.02, atol=0.02)


def features_of(labels: Tensor, noise: float) -> Tensor:
    """Features in two turns that lie around the centre of their class, (N, 2, 16)."""
    centres = unit(torch.randn(4, 2, 16, generator=torch.Generator().manual_seed(2)))
    return unit(centres[labels] + noise * torch.randn(len(labels), 2, 16, generator=torch.Generator().manual_seed(3)))


def test_a_turn_counts_by_the_square_of_its_length() -> None:
    labels = torch.arange(40) % 4
    features, means, held = features_of(labels, 0.3), features_of(torch.arange(4), 0.0), torch.ones(4) > 0
    lengths = torch.tensor([0.8, 0.6])[:, None]
    both = turned_distance(features * lengths, means, held, torch.eye(16))
    alone = [turned_distance(features[:, [t]], means[:, [t]], held, torch.eye(16)) for t in range(2)]
    torch.testing.assert_close(both, 0.64 * alone[0] + 0.36 * alone[1])
    never = features * torch.tensor([1.0, 0.0])[:, None]  # a turn that a client was never shown
    torch.testing.assert_close(turned_distance(never, means, held, torch.eye(16)), alone[0])
    found = turned_familiarity(never, labels, never[::3], labels[::3], 4)
    assert all(tensor.isfinite().all() for tensor in found.values())


def test_a_client_tells_how_well_it_would_know_what_is_foreign() -> None:
    labels, held_back = torch.arange(200) % 4, torch.arange(0, 200, 3)

    def told(noise: float, classes: int = 4) -> float:
        own = labels % classes
        features = features_of(own, noise)
        found = turned_familiarity(features, own, features[held_back], own[held_back], 4)
        return float(found["spread"][2])

    clear, blurred = told(0.02), told(1.0)
    assert clear > 5 > 2 > blurred > 0
    assert told(0.02, classes=1) == 0.0  # which a client of one class cannot know


def test_separation_is_that_of_foreign_images_in_deviations_of_familiar_ones() -> None:
    labels, held_back = torch.arange(200) % 4, torch.arange(0, 200, 3)
    features = features_of(labels, 0.3)
    found = turned_familiarity(features, labels, features[held_back], labels[held_back], 4)
    covariance = unpack_symmetric(found["covariance"].double(), 16).numpy()
    inverse = np.linalg.inv(0.9 * covariance + 0.1 * np.trace(covariance) / 16 * np.eye(16))
    logs: dict[str, list[float]] = {"known": [], "foreign": []}
    for n in held_back.tolist():
        for kind, allowed in (("known", range(4)), ("foreign", [c for c in range(4) if c != labels[n]])):
            far = []
            for turn in range(2):
                away = (features[n, turn] - found["means"][:, turn]).double().numpy()
                far.append(np.log(min(away[c] @ inverse @ away[c] for c in allowed)))
            logs[kind].append(float(np.mean(far)))
    known = np.array(logs["known"])
    count = len(known)
    variance = (2 * 0.3**2 + count * known.var()) / (count + 1)  # as if two more had been seen
    deviation = np.sqrt(variance * (1 + 1 / count))
    expected = [known.mean(), deviation, (np.mean(logs["foreign"]) - known.mean()) / deviation]
    assert found["spread"].tolist() == pytest.approx(expected, rel=1e-3)


def test_two_held_out_images_that_happen_to_lie_equally_far_do_not_make_a_client_sure() -> None:
    labels = torch.arange(40) % 4
    features = features_of(labels, 0.3)
    twice = features[[0, 0]]
    spread = turned_familiarity(features, labels, twice, labels[[0, 0]], 4)["spread"]
    many = turned_familiarity(features, labels, features, labels, 4)["spread"]
    assert float(spread[1]) == pytest.approx(0.3)  # and not 0, by which all others would be impossibly far away
    assert 0 < float(spread[2]) < 2 * float(many[2])


def test_separation_is_a_mean_over_clients_that_can_know_it(members: list[Member]) -> None:
    familiar = [TurnedFamiliar.of(member, torch.device("cpu")) for member in members]
    images = [m.upload.header.samples for m in members]

    def told(*values: float) -> float:
        for known, value in zip(familiar, values, strict=True):
            known.spread = torch.tensor([0.0, 1.0, value])
        return separation(familiar, members)

    assert told(0.2, 0.4, 0.9) == pytest.approx(np.average([0.2, 0.4, 0.9], weights=images))
    assert told(3.0, 4.0, 5.0) == 1.0 and told(-1.0, -1.0, 0.0) == 0.0
    familiar[0].held = torch.arange(10) == 3  # one class only
    assert told(0.0, 0.4, 0.9) == pytest.approx(np.average([0.4, 0.9], weights=images[1:]))
    for known in familiar:
        known.held = torch.arange(10) == 3
    assert told(0.0, 0.0, 0.0) == 1.0


@pytest.fixture(scope="module")
def setting(quick: Callable[..., Spec]) -> Setting:
    return prepare(quick("recommended", validation=0.3))


@pytest.fixture(scope="module")
def good(setting: Setting) -> Upload:
    client = setting.client(2)
    assert isinstance(client, Client)
    return upload_of(setting, client, client.model, ROUTING)


def diagonal(upload: Upload, name: str, value: float) -> Tensor:
    """A packed triangle with the second entry of its diagonal changed."""
    changed = read(upload.tensors[name]).clone()
    changed[2] = value
    return changed


DAMAGED: dict[str, tuple[Callable[[Upload], dict[str, Tensor | None]], str]] = {
    "no common features": (
        lambda u: {"common/centre": None, "common/means": None, "common/root": None},
        "section common is missing",
    ),
    "half of a section": (lambda u: {"common/means": None}, "missing tensor 'common/means'"),
    "a negative diagonal": (
        lambda u: {"common/root": diagonal(u, "common/root", -0.1)},
        "root has a negative entry on its diagonal",
    ),
    "a root in full": (
        lambda u: {"common/root": u.section("common")["root"].float()},
        "type float32, expected float16",
    ),
    "means in full": (
        lambda u: {"common/means": u.section("common")["means"]},
        "type float32, expected float16",
    ),
    "a centre in half": (
        lambda u: {"common/centre": u.section("common")["centre"].half()},
        "type float16, expected float32",
    ),
    "another width": (lambda u: {"common/means": u.section("common")["means"][:, 8:].half()}, r"shape \(10, 360\)"),
    "not a number": (lambda u: {"common/root": diagonal(u, "common/root", torch.nan)}, "not finite"),
    "no deviation": (
        lambda u: {"turned_familiarity/spread": torch.tensor([1.0, 0.0, 1.0])},
        "spread has a deviation of 0 or less",
    ),
    "no temperature": (lambda u: {"reliability/temperature": torch.zeros(1)}, "temperature is 0 or less"),
    "more errors than images": (lambda u: {"reliability/error": torch.full((1,), 1.1)}, "error is not between 0 and 1"),
    "no covariance": (
        lambda u: {"turned_familiarity/covariance": diagonal(u, "turned_familiarity/covariance", -1000.0)},
        "not the covariance of anything",
    ),
    "means of one turn": (
        lambda u: {"turned_familiarity/means": u.section("turned_familiarity")["means"][:, :1].half()},
        r"shape \(10, 1, 512\)",
    ),
    "the familiarity of other methods": (
        lambda u: {"familiarity/distances": torch.ones(3)},
        "unknown section familiarity",
    ),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_sections_are_refused_with_their_reason(
    kind: str, setting: Setting, good: Upload, tmp_path: Path
) -> None:
    file, reception = tmp_path / "upload", Reception(setting, setting.fusion.needs)
    file.write_bytes(good.to_bytes())
    assert reception.admit(file, 2).upload.sections == {"weights", *ROUTING}
    change, reason = DAMAGED[kind]
    changed = {**good.tensors, **change(good)}
    file.write_bytes(replace(good, tensors={k: t for k, t in changed.items() if t is not None}).to_bytes())
    with pytest.raises(UploadRefused, match=reason) as refused:
        reception.admit(file, 2)
    assert "\n" not in str(refused.value)


def size_of_upload(model: Classifier, task: Task, precision: Precision, fusion: str) -> int:
    """The bytes of an upload of that model for a rule, from shapes alone."""
    sizes, counts = sizes_of(model, task), (10,) * task.classes
    tensors = {f"weights/{name}": t for name, t in pack(model.state_dict(), precision).items()}
    for name, section in {**ROUTING, **STATISTICS}.items():
        if name in make_fusion(fusion).needs:
            for key, shape in section.layout(sizes).items():
                lengths = [length or 0 for length in shape]
                tensors[f"{name}/{key}"] = torch.empty(lengths, dtype=section.types.get(key), device="meta")
    header = Header(client=0, samples=sum(counts), class_counts=counts, method="any", precision=precision)
    return Upload(header, tensors).size


@pytest.mark.parametrize(
    ("encoder", "shape", "classes"),
    [
        ("cnn", (1, 8, 8), 10),
        ("cnn", (1, 28, 28), 47),
        ("cnn", (3, 32, 32), 100),
        ("resnet18", (3, 32, 32), 10),
        ("resnet18", (3, 32, 32), 100),
    ],
)
def test_an_upload_is_no_larger_than_that_of_fafi(encoder: str, shape: tuple[int, int, int], classes: int) -> None:
    task = Task(classes, shape, (0.5,) * shape[0], (0.2,) * shape[0], encoder=encoder)
    fafi, turned = build(task, PrototypeHead).to("meta"), turned_model(task).to("meta")
    ratio = size_of_upload(turned, task, "bf16", "routed") / size_of_upload(fafi, task, "fp32", "features")
    assert 0.97 < ratio < 1.05


def test_many_classes_of_a_small_encoder_leave_the_least_room(task: Task) -> None:
    many = replace(task, classes=100)
    shapes = ROUTING["common"].layout(sizes_of(turned_model(many), many))
    assert shapes == {"centre": (16,), "means": (100, 16), "root": (136,)}
