"""One model taught by the ensemble: it imitates, on every kind of images; what is asked, sent, refused and reported."""

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedshot.data.dataset import Dataset, Labelled
from fedshot.errors import UserError
from fedshot.evaluate import score
from fedshot.fusion import Fusion, Member, Predictor, distil, make_fusion
from fedshot.fusion.distil import Images, _lesson, _log_prior, _shares
from fedshot.fusion.imagined import images_from_statistics, noise_images, procedural_images
from fedshot.fusion.interview import Interview
from fedshot.local import losses
from fedshot.local.at_server import ServerTraining
from fedshot.local.pixels import FEWEST, class_pixels
from fedshot.local.views import augment
from fedshot.methods import METHODS
from fedshot.models import Classifier
from fedshot.prepare import prepare
from fedshot.server import fuse_again, receive
from fedshot.setting import Setting
from fedshot.spec import Spec
from fedshot.student import Student, student_of
from fedshot.task import Task
from fedshot.telling import heard_by

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]
BRIEF = "student.passes=2,count=64"


@pytest.fixture(scope="module")
def setting(quick: Quick, divided: Callable[..., str]) -> Setting:
    file = divided((160, range(6)), (120, range(4, 10)), (60, (1, 8)))
    return prepare(quick("fafi", epochs=12, public="0.1", partition_file=file, evaluate_at=()))


@pytest.fixture(scope="module")
def members(setting: Setting, finished: FinishedRun) -> tuple[Member, ...]:
    return receive(setting, finished(setting.spec).folder, ("weights", "class_pixels")).members


@pytest.fixture(scope="module")
def task(setting: Setting) -> Task:
    return setting.task


def taught(text: str, members: tuple[Member, ...], task: Task) -> Predictor:
    return make_fusion(f"distilled:{text}").fuse(members, task)


def state(predictor: Predictor) -> dict[str, Tensor]:
    (model,) = predictor.models
    return model.state_dict()


def equal(one: Predictor, other: Predictor) -> bool:
    first, second = state(one), state(other)
    return all(torch.equal(first[name], second[name]) for name in first)


def divergence(student: Predictor, images: Tensor, task: Task) -> float:
    """KL( teacher || student ) on images as they are stored."""
    assert student.teacher is not None
    seen = task.prepare(images)
    return float(losses.distillation(student(seen), student.teacher(seen).softmax(1), 1.0))


def test_the_student_imitates_its_teacher(members: tuple[Member, ...], task: Task, digits: Dataset) -> None:
    brief, long = taught("passes=1,rate=0.001", members, task), taught("passes=30", members, task)
    images = digits.test.images
    assert divergence(long, images, task) < 0.5 * divergence(brief, images, task)
    assert long.teacher is not None and len(long.models) == 1 and len(long.teacher.models) == 3
    said = score({"student": long, "teacher": long.teacher}, digits.test, task)
    accuracy = {name: float((s.argmax(1) == digits.test.labels).float().mean()) for name, s in said.items()}
    assert accuracy["teacher"] > 0.5
    assert accuracy["student"] > 0.9 * accuracy["teacher"]


@pytest.mark.parametrize("images", ["public", "noise", "procedural", "statistics"])
def test_every_kind_of_images_teaches_something_and_the_same_twice(
    images: Images, members: tuple[Member, ...], task: Task
) -> None:
    text = f"images={images},count=200,alignment=1"
    untaught = taught(f"{text},passes=1,rate=0.000001", members, task)
    student = taught(f"{text},passes=6", members, task)
    seen = distil._images(images, 200, members, task)
    assert divergence(student, seen, task) < 0.8 * divergence(untaught, seen, task)
    again = taught(f"{text},passes=6", (members[2], members[0], members[1]), task)  # nor does their order matter
    assert equal(student, again) and not equal(student, untaught)


def test_neutral_strengths_are_plain_distillation(members: tuple[Member, ...], task: Task) -> None:
    plain = taught(BRIEF, members, task)
    assert equal(plain, taught(f"{BRIEF},calibrate=0,alignment=0,teacher=features:weights=samples", members, task))
    for other in ("calibrate=1", "alignment=1", "temperature=2", "views=3", "start=largest", "teacher=class_weighted"):
        assert not equal(plain, taught(f"{BRIEF},{other}", members, task)), other


def test_a_teacher_may_have_options(members: tuple[Member, ...], task: Task) -> None:
    plain = "features:weights=uniform,scale=unit,prototypes=class_counts"
    found = taught(f"{BRIEF},teacher={plain.replace(',', ';')}", members, task)
    images = task.prepare(torch.randint(256, (5, *task.shape), generator=torch.Generator().manual_seed(1)).byte())
    assert found.teacher is not None
    assert torch.equal(found.teacher(images), make_fusion(plain).fuse(members, task)(images))


def test_the_teacher_is_asked_once_about_every_view_and_the_student_sees_no_other(
    members: tuple[Member, ...], task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, shown, made = list[Tensor](), list[Tensor](), distil.trained_at_server

    class Counting(Interview):
        def __init__(self, panels: Any, images: Tensor, task: Task) -> None:
            asked.append(images)
            super().__init__(panels, images, task)

    def training(model: Classifier, data: Labelled, course: Task, *rest: Any) -> Classifier:
        assert course.augmentation == "none" and task.augmentation != "none"
        shown.append(data.images)
        return made(model, data, course, *rest)

    monkeypatch.setattr(distil, "Interview", Counting)
    monkeypatch.setattr(distil, "trained_at_server", training)
    taught("student.passes=1,views=3", members, task)
    assert task.public is not None and len(asked) == len(shown) == 1
    plain, views = task.public.data.images, asked[0].split(len(task.public.data))
    assert torch.equal(shown[0], asked[0]) and torch.equal(views[0], plain) and len(views) == 3
    for view in views[1:]:  # of the same image each, found again far above chance, and none of them the image
        apart = (view.float()[:, None] - plain.float()[None]).flatten(2).norm(dim=2)
        assert (apart.argmin(1) == torch.arange(len(plain))).float().mean() > 0.2 and apart.diagonal().min() > 0
    assert not torch.equal(views[1], views[2])
    assert torch.equal(distil._views(plain, 1, task), plain)


@pytest.fixture(scope="module")
def routed_run(quick: Quick, divided: Callable[..., str], finished: FinishedRun) -> tuple[Setting, tuple[Member, ...]]:
    file = divided((160, range(6)), (120, range(4, 10)), (60, (1, 8)))
    setting = prepare(quick("recommended", epochs=6, public="0.1", partition_file=file, evaluate_at=()))
    needs = make_fusion("routed").needs
    return setting, receive(setting, finished(setting.spec).folder, needs).members


def test_beside_common_features_a_student_learns_only_what_they_lack(
    routed_run: tuple[Setting, tuple[Member, ...]], digits: Dataset
) -> None:
    setting, members = routed_run
    seen = setting.task.prepare(digits.test.images)
    alone, beside = (
        taught(f"teacher=routed,passes=1,{more}", members, setting.task) for more in ("start=average", "beside=common")
    )
    support = make_fusion("common").fuse(members, setting.task)
    (model,) = beside.models
    torch.testing.assert_close(beside(seen), model(seen) + support(seen))
    assert divergence(beside, digits.test.images, setting.task) < 0.8 * divergence(
        alone, digits.test.images, setting.task
    )


def test_the_one_model_of_routed_clients_is_taught_by_as_many_shapes_as_they_hold_images(
    routed_run: tuple[Setting, tuple[Member, ...]], finished: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting, members = routed_run
    made, shapes = list[int](), distil.procedural_images

    def counted(count: int, task: Task) -> Tensor:
        made.append(count)
        return shapes(count, task)

    monkeypatch.setattr(distil, "procedural_images", counted)
    told = list[str]()
    with heard_by(told.append):
        one = make_fusion("single:student.passes=2").fuse(members, setting.task)
    held = sum(member.upload.header.samples for member in members)
    assert made == [held] and held > 256
    spelt = "teacher=routed,images=procedural,beside=common,start=largest,student.batch=256"
    assert equal(one, taught(f"{spelt},count={held},student.passes=2", members, setting.task))
    rule = make_fusion("single")
    assert rule.name == "single" and rule.needs == make_fusion("routed").needs and rule.trains and not rule.public
    asked = [text for text in told if "asking" in text]
    assert asked[0] == f"asking model 1 of 3 about images 1 to {4 * held:,} of {4 * held:,}" and len(asked) == 3
    assert told[-1] == f"training a student at the server: 2 of 2 passes over {4 * held:,} images"
    folder = finished(setting.spec).folder
    (row,) = fuse_again(setting, folder, ["single:student.passes=1"])
    assert row["models_kept"] == 1 and row["student"]["teacher_models"] == 3


@pytest.mark.parametrize(
    "recipe, asked, both", [("natural", "", True), ("natural", ",mirrored=0", False), ("characters", "", False)]
)
def test_a_student_asks_the_mirror_too_where_a_flip_does_not_matter(
    members: tuple[Member, ...], task: Task, recipe: Any, asked: str, both: bool, digits: Dataset
) -> None:
    student = taught(f"images=noise,{BRIEF}{asked}", members, replace(task, augmentation=recipe))
    seen = task.prepare(digits.test.images[:9])
    assert torch.allclose(student(seen), student(seen.flip(3)), atol=1e-5) is both
    assert (student.models[0].width == 2 * members[0].model.width) is both


def test_what_stands_beside_a_student_is_no_part_of_its_features(
    routed_run: tuple[Setting, tuple[Member, ...]], digits: Dataset
) -> None:
    setting, members = routed_run
    teacher, support = (make_fusion(name).fuse(members, setting.task) for name in ("routed", "common"))
    images, shares = digits.test.images[:5], _shares(teacher, members)
    both = _lesson(teacher, images, setting.task, torch.zeros(10), 1.0, shares, support).targets
    plain = _lesson(teacher, images, setting.task, torch.zeros(10), 1.0, shares).targets
    assert both is not None and plain is not None
    torch.testing.assert_close(both[:, :10], plain[:, :10])
    torch.testing.assert_close(both[:, 10:20], support(setting.task.prepare(images)))
    torch.testing.assert_close(both[:, 20:], plain[:, 10:])
    objective = distil._objective(10, 1.0, alignment=1.0, supported=True)
    logits, targets = torch.randn(5, 10), torch.cat([both[:, :20], torch.nn.functional.one_hot(torch.arange(5), 16)], 1)
    step = SimpleNamespace(logits=logits, unit=torch.eye(5, 16), targets=targets)
    told, near = objective.base[0].value(step), objective.align[0].value(step)
    assert float(near) == pytest.approx(0, abs=1e-6)
    assert float(told) == pytest.approx(float(losses.distillation(logits + both[:, 10:20], both[:, :10], 1.0)))


def test_calibration_takes_the_prior_of_the_federation_off(members: tuple[Member, ...], task: Task) -> None:
    counts = [sum(m.upload.header.class_counts[c] for m in members) for c in range(10)]
    few = [replace(m, upload=replace(m.upload, header=_without_class(m.upload.header, 9))) for m in members]
    for c in range(10):
        assert float(_log_prior(members)[c].exp()) == pytest.approx(counts[c] / sum(counts))
    nobody = _log_prior(few)
    assert nobody.isfinite().all() and nobody[9] == nobody.max()  # nothing speaks for a class that nobody holds


def test_a_lesson_is_what_the_teacher_says_softened_and_calibrated(
    members: tuple[Member, ...], task: Task, digits: Dataset
) -> None:
    teacher, images = make_fusion("logits").fuse(members, task), digits.test.images[:5]
    shares, temperature = _shares(teacher, members), 2.0
    lesson = _lesson(teacher, images, task, 0.7 * _log_prior(members), temperature, shares)
    counts = [sum(m.upload.header.class_counts[c] for m in members) for c in range(10)]
    held = [m.upload.header.samples for m in members]
    seen = task.prepare(images)
    assert lesson.targets is not None and lesson.targets.shape == (5, 10 + 512)
    for n in range(5):
        scores = [
            sum(h / sum(held) * float(m.model(seen[n : n + 1])[0, c]) for h, m in zip(held, members, strict=True))
            - 0.7 * math.log(counts[c] / sum(counts))
            for c in range(10)
        ]
        odds = [math.exp(s / temperature) for s in scores]
        feature = torch.zeros(512)
        for h, m in zip(held, members, strict=True):
            mine = m.model.features(seen[n : n + 1])[0]
            feature += h / sum(held) * mine / mine.norm()
        assert lesson.targets[n, :10].tolist() == pytest.approx([o / sum(odds) for o in odds], rel=1e-3)
        torch.testing.assert_close(lesson.targets[n, 10:], feature, rtol=1e-3, atol=1e-5)
        assert int(lesson.labels[n]) == max(range(10), key=lambda c: scores[c])


def _without_class(header: Any, label: int) -> Any:
    counts = tuple(0 if c == label else n for c, n in enumerate(header.class_counts))
    return header.model_copy(update={"class_counts": counts, "samples": sum(counts)})


def test_distillation_is_the_divergence_of_softened_answers() -> None:
    z = torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    t = torch.randn(5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for temperature in (1.0, 3.0):
        total = 0.0
        for i in range(5):
            q = [float(e) for e in (t[i] / temperature).exp() / (t[i] / temperature).exp().sum()]
            p = [float(e) for e in (z[i] / temperature).exp() / (z[i] / temperature).exp().sum()]
            total += sum(a * float(torch.tensor(a / b, dtype=torch.float64).log()) for a, b in zip(q, p, strict=True))
        found = losses.distillation(z, (t / temperature).softmax(1), temperature)
        assert float(found) == pytest.approx(temperature**2 * total / 5)
        assert float(losses.distillation(t, (t / temperature).softmax(1), temperature)) == pytest.approx(0, abs=1e-9)


def test_class_pixels_are_means_and_deviations_of_tiles() -> None:
    draw = torch.Generator().manual_seed(1)
    images = torch.randint(256, (13, 3, 16, 24), generator=draw).byte()
    labels = torch.tensor([0] * 8 + [2] * 5)
    found = class_pixels(images, labels, 4)
    assert found["mean"].shape == found["std"].shape == (4, 3, 8, 8)
    for label, channel, row, column in ((0, 0, 0, 0), (0, 2, 7, 3), (2, 1, 4, 7)):
        tiles = [
            images[i, channel, 2 * row : 2 * row + 2, 3 * column : 3 * column + 3].double().mean() / 255
            for i in range(13)
            if labels[i] == label
        ]
        mean = sum(tiles) / len(tiles)
        assert float(found["mean"][label, channel, row, column]) == pytest.approx(float(mean), rel=1e-5)
        variance = sum((tile - mean) ** 2 for tile in tiles) / len(tiles)
        assert float(found["std"][label, channel, row, column]) == pytest.approx(float(variance) ** 0.5, rel=1e-4)
    assert not found["mean"][[1, 3]].any()


def test_a_class_of_few_images_is_not_described() -> None:
    images, labels = torch.full((FEWEST, 1, 8, 8), 200).byte(), torch.zeros(FEWEST, dtype=torch.int64)
    assert class_pixels(images, labels, 2)["mean"][0].all()
    assert not class_pixels(images[1:], labels[1:], 2)["mean"].any()


def test_images_from_statistics_look_like_the_class_that_they_are_drawn_from(
    members: tuple[Member, ...], task: Task, digits: Dataset
) -> None:
    images = images_from_statistics(400, members, task)
    assert images.shape == (400, 1, 8, 8) and images.dtype == torch.uint8
    # classes come in turn; each mean image is nearest to the mean digit of its class
    means = torch.stack([digits.train.images[digits.train.labels == c].float().mean(0).flatten() for c in range(10)])
    for c in range(10):
        drawn = images[c::10].float().mean(0).flatten()
        assert int((means - drawn).norm(dim=1).argmin()) == c


def test_procedural_images_are_drawn_by_the_seed_and_cut_to_size(task: Task) -> None:
    wide = replace(task, shape=(3, 6, 9))
    images = procedural_images(2_003, wide)
    assert images.shape == (2_003, 3, 6, 9) and images.dtype == torch.uint8
    assert len(images.flatten(1).unique(dim=0)) == 2_003  # no part repeats another
    assert torch.equal(images, procedural_images(2_003, wide))
    assert not torch.equal(images, procedural_images(2_003, replace(wide, seed=wide.seed + 1)))


def test_noise_has_the_moments_of_the_task(task: Task) -> None:
    grey = replace(task, shape=(3, 16, 16), mean=(0.4, 0.5, 0.6), std=(0.1, 0.1, 0.05))
    noise = noise_images(100, grey).float() / 255
    torch.testing.assert_close(noise.mean((0, 2, 3)), torch.tensor(grey.mean), atol=0.01, rtol=0)
    torch.testing.assert_close(noise.std((0, 2, 3)), torch.tensor(grey.std), atol=0.01, rtol=0)


def test_no_augmentation_is_the_image() -> None:
    images = torch.randint(256, (3, 1, 8, 8), generator=torch.Generator().manual_seed(1)).byte()
    assert torch.equal(augment(images, "none", torch.Generator().manual_seed(1)), images / 255)


def test_a_rule_inherits_what_its_teacher_needs() -> None:
    assert make_fusion("distilled").needs == ("weights",) and make_fusion("distilled").public
    rule = make_fusion("distilled:teacher=typicality,images=statistics")
    assert rule.needs == ("weights", "familiarity", "class_pixels") and rule.held_out and not rule.public
    assert make_fusion("distilled:teacher=moments,images=noise").needs == ("weights", "moments")
    assert make_fusion("distilled:beside=common").needs == ("weights", "common")
    assert make_fusion("distilled:teacher=routed,beside=common").needs == make_fusion("routed").needs


def test_statistics_cost_what_the_docs_say(members: tuple[Member, ...]) -> None:
    upload = members[0].upload
    plain, more = (upload.only(make_fusion(f"distilled:images={kind}").needs) for kind in ("noise", "statistics"))
    section = upload.section("class_pixels")
    assert sum(t.nbytes for t in section.values()) == 2 * 4 * 10 * 64
    assert 0 <= more.size - plain.size - 2 * 4 * 10 * 64 < 256  # and their names


def test_bad_input_is_told_before_anything_is_trained(members: tuple[Member, ...], task: Task, quick: Quick) -> None:
    with pytest.raises(UserError, match=r"unknown fusion rule 'featrues'.*did you mean 'features'"):
        make_fusion("distilled:teacher=featrues")
    with pytest.raises(UserError, match="batch_moments reads statistics of the test images"):
        prepare(quick("distilled", {"teacher": "batch_moments"}))
    with pytest.raises(UserError, match=r"public \| noise \| procedural \| statistics"):
        make_fusion("distilled:images=dreams")
    for teacher in ("common", "single", "distilled:images=noise"):
        with pytest.raises(UserError, match=f"which the teacher {teacher.split(':')[0]} does not ask"):
            make_fusion(f"distilled:alignment=1,teacher={teacher}")
    with pytest.raises(UserError, match=r"look at every turn of an image.*leave alignment at 0"):
        prepare(quick("recommended", validation=0.2, fusion="distilled:images=noise,alignment=1")).rehearse()
    with pytest.raises(UserError, match=r"the run has set none aside: name another data set"):
        taught(BRIEF, members, replace(task, public=None))
    tiny = [replace(m, upload=replace(m.upload, header=_alone(m.upload.header))) for m in members]
    with pytest.raises(UserError, match="no client holds 5 images of any class"):
        images_from_statistics(10, tiny, task)
    with pytest.raises(UserError, match=r"diverged in epoch 1.*lower student.rate from 1e\+20"):
        taught("passes=1,rate=1e20", members, task)


def _alone(header: Any) -> Any:
    return header.model_copy(update={"class_counts": (1,) * 10, "samples": 10})


def test_fuse_again_reports_what_is_kept(setting: Setting, finished: FinishedRun) -> None:
    asked = ["features", *(f"distilled:images={kind},{BRIEF}" for kind in ("public", "noise", "statistics"))]
    rows = {row["fusion"]: row for row in fuse_again(setting, finished(setting.spec).folder, asked)}
    assert "student" not in rows["features"]
    for text in asked[1:]:
        student = Student(**rows[text]["student"])
        assert student.teacher_accuracy == rows["features"]["accuracy"]
        assert student.accuracy == rows[text]["accuracy"] and rows[text]["models_kept"] == 1
        assert student.accuracy_kept == pytest.approx(student.accuracy / student.teacher_accuracy)
        assert student.teacher_models == 3 and student.speed > 1


def test_a_run_without_public_images_can_be_distilled_on_others(quick: Quick, finished: FinishedRun) -> None:
    spec = quick("fafi")
    rows = fuse_again(prepare(spec), finished(spec).folder, ["distilled", f"distilled:images=noise,{BRIEF}"])
    assert [row.get("models_kept") for row in rows] == [1, None]
    assert "the run has set none aside" in rows[1]["error"]


def test_a_record_tells_what_the_student_keeps(quick: Quick, finished: FinishedRun) -> None:
    record = finished(quick("distilled")).record
    assert record.spec.public == "0.1" and record.cost.models_kept == 1
    assert record.student is not None and record.student.accuracy == record.final.accuracy
    assert record.student.teacher_models == 3
    parent = finished(quick("fafi", public="0.1"))  # the same clients, kept as an ensemble
    assert parent.uploads == finished(quick("distilled")).uploads and parent.record.student is None
    assert parent.record.final.accuracy == record.student.teacher_accuracy
    slower = record.student.model_copy(update={"seconds": 99.0})
    assert record.model_copy(update={"student": slower}).sealed().result_sha256 == record.result_sha256


def test_the_methods_options_hold_for_whoever_reads_the_complete_spec(quick: Quick) -> None:
    complete = prepare(quick("distilled", {"images": "statistics"})).spec
    assert complete.fusion == "distilled" and complete.public is None
    assert prepare(complete).fusion.needs == ("weights", "class_pixels")


def test_what_is_kept_in_words(members: tuple[Member, ...], task: Task, digits: Dataset) -> None:
    student = taught(BRIEF, members, task)
    assert student_of(replace(student, teacher=None), 0.5, None, digits.test, task) is None
    found = student_of(student, 0.48, 0.5, digits.test, task)
    assert found is not None
    told = found.model_copy(update={"seconds": 1.0, "teacher_seconds": 5.1, "agreement": 0.5, "agreement_taught": 0.9})
    kept = "one model keeps 96 % of the accuracy of 3 models, at 5.1 times their speed"
    learned = "it answers as they do on 90 % of what it was taught and on 50 % of the test images"
    assert told.in_words() == f"{kept}; {learned}"
    assert told.model_copy(update={"agreement": None}).in_words() == kept  # an older record
    hopeless = student_of(student, 0.1, 0.0, digits.test, task)
    assert hopeless is not None and hopeless.accuracy_kept is None and "keeps –" in hopeless.in_words()


def test_how_often_student_and_teacher_agree(members: tuple[Member, ...], task: Task, digits: Dataset) -> None:
    student = taught(BRIEF, members, task)
    teacher = student.teacher
    assert teacher is not None and student.lesson is not None
    found = student_of(student, 0.48, 0.5, digits.test, task)
    assert found is not None

    def answers(predictor: Predictor, images: Tensor) -> Tensor:
        with torch.no_grad():
            return predictor(task.prepare(images)).argmax(1)

    alike = answers(student, digits.test.images) == answers(teacher, digits.test.images)
    assert found.agreement == pytest.approx(alike.double().mean().item())
    lesson = student.lesson
    assert torch.equal(answers(teacher, lesson.images), lesson.labels)  # what it was taught
    learned = answers(student, lesson.images) == lesson.labels
    assert found.agreement_taught == pytest.approx(learned.double().mean().item())
    assert 0.3 < found.agreement < 1 and 0.3 < found.agreement_taught < 1
    alone = student_of(replace(student, lesson=None), 0.48, 0.5, digits.test, task)
    assert alone is not None and alone.agreement == found.agreement and alone.agreement_taught is None


def test_weight_decay_shortens_what_the_server_trains(members: tuple[Member, ...], task: Task) -> None:
    def length(decay: float) -> float:
        (model,) = taught(f"{BRIEF},student.decay={decay:g}", members, task).models
        return sum(float(p.detach().square().sum()) for p in model.parameters() if p.ndim > 1)

    assert length(0.5) < 0.9 * length(0.0)


def test_the_method_hands_every_option_to_its_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "teacher": "logits",
        "images": "noise",
        "count": 7,
        "views": 2,
        "temperature": 3.0,
        "calibrate": 0.5,
        "alignment": 0.25,
        "beside": "common",
        "start": "largest",
        "mirrored": False,
        "student": ServerTraining(passes=2),
    }
    told: dict[str, Any] = {}

    def rule(*args: Any, **named: Any) -> Fusion:
        told.update(signature(distil.distilled).bind(*args, **named).arguments)
        return make_fusion("features")

    assert {*given} == {*signature(distil.distilled).parameters}
    monkeypatch.setattr(sys.modules[METHODS["distilled"].__module__], "distilled_rule", rule)
    METHODS["distilled"](**given)
    assert told == given


def test_options_of_the_rule_have_one_place(quick: Callable[..., Spec]) -> None:
    assert prepare(quick("distilled", fusion="distilled:calibrate=1")).spec.options["calibrate"] == 1
    with pytest.raises(UserError, match=r"one place, --set passes=… or --fusion distilled:calibrate=1"):
        prepare(quick("distilled", {"passes": 3}, fusion="distilled:calibrate=1"))
    with pytest.raises(UserError, match=r"give the rule's options as the method's, --set scale=…"):
        prepare(quick("gated_supcon", fusion="features:scale=unit"))
    assert prepare(quick("distilled", {"student.rate": 0.01, "images": "noise"})).spec.public is None
    assert prepare(quick("fafi", fusion="distilled:images=noise")).fusion.name == "distilled"
    assert prepare(quick("distilled", fusion="features:scale=unit")).fusion.name == "features"
