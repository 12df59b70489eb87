"""Class counts that are withheld or noised: what leaves, what the rules then do, and what the record says."""

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedshot.errors import UploadRefused, UserError
from fedshot.experiment import run
from fedshot.fusion import FUSIONS, Member, make_fusion
from fedshot.local.work import upload_of
from fedshot.method import Client
from fedshot.models.copies import frozen_copy
from fedshot.prepare import prepare
from fedshot.privacy.client import kept_told, told
from fedshot.privacy.counts import check_told, even, told_counts
from fedshot.privacy.policy import CountsPolicy, stricter
from fedshot.privacy.randomness import Randomness, seeded
from fedshot.privacy.record import in_words
from fedshot.privacy.rules import _USES, use_of_counts
from fedshot.record import Record, result_digest
from fedshot.server import Reception, fuse_again
from fedshot.setting import Setting
from fedshot.spec import Spec, make_spec
from fedshot.store import ClientSummary
from fedshot.upload import SECTIONS, Header, parse

Quick = Callable[..., Spec]


def client_of(setting: Setting, number: int = 0) -> Client:
    client = setting.client(number)
    assert isinstance(client, Client)
    return client


@pytest.mark.parametrize("text", ["", "hidden", "noised", "noised:", "noised:0", "noised:-1", "noised:inf", "noised:x"])
def test_a_policy_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="write exact, withheld, or noised:EPSILON such as noised:1"):
        make_spec(method="fafi", counts=text)


def test_one_policy_has_one_spelling_and_one_hash() -> None:
    assert make_spec(method="fafi", counts="noised:1.0").sha256 == make_spec(method="fafi", counts="noised:1").sha256


def test_the_stricter_policy_tells_less() -> None:
    order = ["withheld", "noised:0.1", "noised:2", "exact"]
    for i, strict in enumerate(order):
        for loose in order[i:]:
            assert stricter(strict, loose) == stricter(loose, strict) == strict


# hashes and bytes of before: typed here as they were when no field of `later` existed


def test_specs_headers_and_summaries_of_before_keep_their_bytes_and_hashes() -> None:
    assert make_spec(method="fafi").sha256 == "6e17dde6c84b0a0b76b3c12ec3ec7c71c1c2f2679f00a8b2e0ba19200eebaf07"
    assert not set(make_spec(method="fafi").model_dump()) & set(Spec.later)
    header = Header(client=1, samples=3, class_counts=(1, 2), method="fafi", fedshot="0.1.0")
    assert header.model_dump_json() == (
        '{"client":1,"samples":3,"class_counts":[1,2],"method":"fafi","precision":"fp32",'
        '"validation_accuracy":null,"fedshot":"0.1.0"}'
    )
    assert "spent" not in ClientSummary(id=0, samples=2).model_dump_json()


def test_a_record_of_before_still_verifies(quick: Quick, finished: Callable) -> None:
    """As a stored one is read: its spec lacks the new fields, and its hash is that of its own content."""
    content = json.loads(finished(quick("fafi")).record.model_dump_json())
    assert not set(content["spec"]) & set(Spec.later)
    record = Record.model_validate(content)
    assert record.spec.model_dump(mode="json") == content["spec"]
    assert result_digest(record.model_dump(mode="json")) == result_digest(content) == record.result_sha256


def test_exact_counts_leave_the_upload_as_it_was(quick: Quick) -> None:
    setting = prepare(quick("fafi"))
    client = client_of(setting)
    assert told_counts(client, setting.spec) == (client.class_counts, 40)
    assert "counts" not in json.loads(upload_of(setting, client, client.model, ()).header.model_dump_json())


def test_withheld_counts_are_a_stand_in_that_tells_the_size_alone(quick: Quick) -> None:
    setting = prepare(quick("fafi", counts="withheld"))
    for number, samples in enumerate((40, 33, 17)):
        client = client_of(setting, number)
        header = upload_of(setting, client, client.model, SECTIONS).header
        assert (header.counts, header.samples) == ("withheld", samples)
        assert header.class_counts == even(samples, 10)
        assert len(set(header.class_counts)) == 1


@pytest.mark.parametrize("counts", ["withheld", "noised:1"])
def test_sections_that_show_held_classes_stay(counts: str, quick: Quick) -> None:
    setting = prepare(quick("fafi", counts=counts, validation=0.2))
    client = client_of(setting)
    assert upload_of(setting, client, client.model, SECTIONS).sections == {"weights", "moments"}


def test_noised_counts_are_whole_numbers_of_at_least_0_that_add_up(quick: Quick) -> None:
    setting = prepare(quick("fafi", counts="noised:0.3"))
    for number in range(3):
        client = client_of(setting, number)
        counts, samples = told_counts(client, setting.spec)
        assert all(isinstance(n, int) and n >= 0 for n in counts) and sum(counts) == samples >= 1
        assert counts != client.class_counts
        assert told_counts(client, setting.spec) == (counts, samples)  # seeded
    other = prepare(quick("fafi", counts="noised:0.3", seed=2))
    assert told_counts(client_of(other), other.spec) != told_counts(client_of(setting), setting.spec)


@pytest.mark.parametrize(("most", "held_out"), [(None, 100), (30, 30)])
def test_noised_counts_know_how_many_images_a_client_holds_back_at_most(
    most: int | None, held_out: int, divided: Callable[..., str]
) -> None:
    file = divided((200, (0, 1)))
    spec = make_spec(method="fafi", clients=1, partition_file=file, counts="noised:9", validation=0.5)
    setting = prepare(spec.model_copy(update={"validation_most": most}))
    assert told(client_of(setting), setting.spec).samples == pytest.approx(200 - held_out, abs=4)
    assert told(client_of(setting), setting.spec).validation_samples == pytest.approx(held_out, abs=4)


def test_a_client_whose_noise_takes_everything_still_has_an_image(divided: Callable[..., str]) -> None:
    spec = make_spec(method="fafi", clients=1, partition_file=divided((2, (0,))), counts="noised:0.001")
    setting = prepare(spec)
    empty = replace(client_of(setting), class_counts=(0,) * 10)
    for seed in range(40):
        counts, samples = told_counts(empty, spec.model_copy(update={"seed": seed}))
        assert sum(counts) == samples >= 1


@pytest.mark.parametrize("source", ["seeded", "system"])
def test_geometric_noise_has_its_distribution(source: str) -> None:
    epsilon, draws = 0.7, 40_000
    spec = make_spec(method="fafi", noise_source=source)
    noise = Randomness.of(spec, "test").geometric(epsilon, draws)
    alpha = math.exp(-epsilon)
    found = Counter(noise.tolist())
    for value in (-2, -1, 0, 1, 2):
        expected = (1 - alpha) / (1 + alpha) * alpha ** abs(value)
        assert found[value] / draws == pytest.approx(expected, abs=5 * math.sqrt(expected / draws))


def test_neighbouring_clients_are_told_apart_by_no_more_than_epsilon() -> None:
    """The definition itself, on the released number: two counts that differ by one image, all outputs compared."""
    epsilon, draws = 1.0, 200_000
    spec = make_spec(method="fafi")
    with_image, without = (
        Counter((n + Randomness.of(spec, n).geometric(epsilon, draws)).clamp(min=0).tolist()) for n in (4, 3)
    )
    common = [value for value in with_image if with_image[value] > 500 and without[value] > 500]
    assert len(common) > 5
    for value in common:
        slack = 5 / math.sqrt(min(with_image[value], without[value]))
        assert abs(math.log(with_image[value] / without[value])) <= epsilon + slack


def test_system_noise_differs_each_time_and_knows_no_seed() -> None:
    spec = make_spec(method="fafi", noise_source="system")
    first, second = (Randomness.of(spec, "counts").normal((500,)) for _ in range(2))
    assert not torch.equal(first, second)
    both = torch.cat([first, second])
    assert abs(float(both.mean())) < 0.2 and float(both.std()) == pytest.approx(1, abs=0.15)
    assert Randomness.of(spec, "nothing").uniform(0).shape == (0,)


def told_apart(setting: Setting, text: str) -> bool:
    """Whether a rule says something else when the same models come with other class counts of the same sum."""
    rule = make_fusion(text)
    members = []
    for number in range(3):
        client = client_of(setting, number)
        with torch.no_grad():
            for parameter in client.model.parameters():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)))
        model = frozen_copy(client.model)
        members.append(Member(upload_of(setting, client, client.model, SECTIONS), lambda model=model: model))
    moved = []
    for member in members:
        counts = list(member.upload.header.class_counts)
        counts[0], counts[9] = counts[0] + counts[9] + counts[4] // 2, 0
        counts[4] -= counts[4] // 2
        header = member.upload.header.model_copy(update={"class_counts": tuple(counts)})
        moved.append(Member(replace(member.upload, header=header), member.load))
    images = setting.task.prepare(setting.data.test.images[:20])
    one, other = (rule.fuse(each, setting.task)(images) for each in (members, moved))
    return not torch.allclose(one, other, atol=1e-6)


BY_COUNTS = [
    *(name for name in FUSIONS if name not in ("distilled", "single", "common", "routed")),
    "features:prototypes=class_counts",
    "moments:prototypes=class_counts",
    "dynamic_prototypes:counts=0,confidence=0,unseen=true",
    "shared_base:shared=2",
    "shared_base:shared=1,vote=class_weighted",
    "distilled:images=noise,count=40,student.passes=2",
    "distilled:images=noise,count=40,student.passes=2,calibrate=1",
    "distilled:images=noise,count=40,student.passes=2,teacher=class_weighted",
]


@pytest.fixture(scope="module")
def held(quick: Quick) -> Setting:
    return prepare(quick("fafi", epochs=1, validation=0.2))


@pytest.mark.parametrize("text", BY_COUNTS)
def test_the_table_of_rules_says_who_reads_counts(text: str, held: Setting) -> None:
    """Not believed: every rule is tried with other counts."""
    said = use_of_counts(held.spec.model_copy(update={"fusion": text}), make_fusion(text))
    assert (said != "nothing") == told_apart(held, text)


def test_every_rule_is_in_the_table() -> None:
    assert set(_USES) == set(FUSIONS)


def test_the_options_of_a_methods_own_rule_count() -> None:
    for beside, uses in (("nothing", "nothing"), ("common", "weighs")):
        text = f"distilled:images=noise,beside={beside}"
        assert use_of_counts(make_spec(method="recommended", fusion=text), make_fusion(text)) == uses
    calibrated = make_spec(method="distilled", options={"images": "noise", "calibrate": 1.0}, counts="withheld")
    with pytest.raises(UserError, match="decides by them"):
        prepare(calibrated)
    prepare(make_spec(method="distilled", options={"images": "noise"}, counts="withheld"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"fusion": "nearest_prototype"}, "needs the section class_means, which shows which classes are held"),
        ({"fusion": "typicality", "validation": 0.2}, "needs the section familiarity"),
        ({"fusion": "dynamic_prototypes"}, "needs the section class_confidence"),
        ({"fusion": "distilled:images=statistics"}, "needs the section class_pixels"),
        ({"fusion": "shared_base"}, r"decides by them what is shared.*shared_base:shared=3"),
        ({"method": "split_announced"}, "announce theirs exactly"),
    ],
)
def test_a_rule_that_cannot_do_without_counts_says_so_before_training(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        prepare(make_spec(**{"method": "fafi", "counts": "withheld", **given}))


def test_a_weighing_rule_falls_back_to_images_and_the_record_says_so(quick: Quick, tmp_path: Path) -> None:
    record = run(quick("fafi", counts="withheld", fusion="class_weighted"), tmp_path / "run")
    assert record.privacy is not None and record.privacy.warning is None
    assert record.privacy.lost is not None and "weighed them by all their images" in record.privacy.lost
    assert [client.counts for client in record.privacy.clients] == ["withheld"] * 3
    by_images = run(quick("fafi", fusion="probabilities"))
    assert record.final.accuracy == pytest.approx(by_images.final.accuracy, abs=0.02)
    stored = Record.model_validate_json((tmp_path / "run" / "record.json").read_bytes())
    assert stored.privacy == record.privacy


def test_what_only_the_lab_scores_is_scored_by_the_truth(quick: Quick, finished: Callable) -> None:
    exact = finished(quick("fafi")).record
    withheld = run(quick("fafi", counts="withheld"))
    assert withheld.final.oracle_routing == exact.final.oracle_routing
    assert withheld.final.personalised_accuracy == exact.final.personalised_accuracy
    assert withheld.final.accuracy == exact.final.accuracy  # features reads the number of images alone
    assert withheld.privacy is not None and withheld.privacy.lost is None
    assert exact.privacy is None


def test_noised_counts_reach_summary_and_record(quick: Quick, tmp_path: Path) -> None:
    record = run(quick("fafi", counts="noised:0.2", fusion="class_weighted", validation=0.2), tmp_path / "run")
    assert record.privacy is not None
    assert record.privacy.lost is not None and "counts carry noise (noised:0.2)" in record.privacy.lost
    assert record.privacy.warning is not None and "seed" in record.privacy.warning
    for client in record.clients:
        header = parse((tmp_path / "run/clients" / str(client.id) / "upload.safetensors").read_bytes()).header
        assert client.samples == header.samples == sum(header.class_counts)
        assert client.validation_samples == round(header.samples * 0.2 / 0.8)


def test_an_upload_that_tells_more_than_the_run_asks_for_is_refused(quick: Quick, tmp_path: Path) -> None:
    exact, withheld = prepare(quick("fafi")), prepare(quick("fafi", counts="withheld"))
    client = client_of(exact)
    file = tmp_path / "upload.safetensors"
    file.write_bytes(upload_of(exact, client, client.model, ()).to_bytes())
    with pytest.raises(UploadRefused, match="its class counts are exact, those of the run withheld"):
        Reception(withheld, ("weights",)).admit(file, 0)
    file.write_bytes(upload_of(withheld, client, client.model, ()).to_bytes())
    assert Reception(exact, ("weights",)).admit(file, 0).upload.header.counts == "withheld"  # a stricter site
    check_told("noised:1", exact.spec.model_copy(update={"counts": "noised:2"}))


def test_withheld_counts_that_differ_are_refused(quick: Quick, tmp_path: Path) -> None:
    setting = prepare(quick("fafi", counts="withheld"))
    client = client_of(setting)
    upload = upload_of(setting, client, client.model, ())
    header = upload.header.model_copy(update={"class_counts": client.class_counts})
    file = tmp_path / "upload.safetensors"
    file.write_bytes(replace(upload, header=header).to_bytes())
    with pytest.raises(UploadRefused, match="withheld, and yet they differ"):
        Reception(setting, ("weights",)).admit(file, 0)


def test_a_policy_reads_back_as_it_is_written() -> None:
    for text in ("exact", "withheld", "noised:0.25"):
        assert str(CountsPolicy.parse(text)) == text


def test_counters_of_steps_do_not_tell_what_the_noise_hides(quick: Quick, finished: Callable) -> None:
    exact = parse(finished(quick("fafi")).folder.upload(0).read_bytes()).section("weights")
    noised = parse(finished(quick("fafi", counts="noised:1")).folder.upload(0).read_bytes()).section("weights")
    counters = [name for name in exact if name.endswith("num_batches_tracked")]
    assert counters and all(int(exact[name]) == 2 * 3 for name in counters)  # 2 epochs of 3 batches
    assert all(int(noised[name]) == 0 for name in counters)
    assert all(torch.equal(exact[name], noised[name]) for name in exact if name not in counters)


def test_fusing_again_refuses_rules_that_would_decide_by_a_stand_in(quick: Quick, finished: Callable) -> None:
    done = finished(quick("fafi", counts="withheld"))
    rows = {row["fusion"]: row for row in fuse_again(prepare(done.record.spec), done.folder)}
    assert "decides by them" in rows["shared_base"]["error"]
    assert "weighed them by all their images" in rows["class_weighted"]["lost"]
    assert "lost" not in rows["features"]
    exact = fuse_again(prepare(finished(quick("fafi")).record.spec), finished(quick("fafi")).folder, ["class_weighted"])
    assert "lost" not in exact[0]


def test_the_words_of_a_private_run_are_few(quick: Quick, finished: Callable) -> None:
    record = finished(quick("fafi", counts="withheld")).record
    assert in_words(record.privacy) == ["class counts: withheld"]


def test_noise_of_the_system_is_drawn_once_for_a_job(quick: Quick, tmp_path: Path) -> None:
    """Asked again after a crash, a client tells the same: two draws would tell more than one."""
    setting = prepare(quick("fafi", counts="noised:0.1", noise_source="system"))
    client, file = client_of(setting), tmp_path / "told.json"
    first = kept_told(client, setting.spec, file)
    assert kept_told(client, setting.spec, file) == first
    assert any(kept_told(client, setting.spec, tmp_path / f"{n}.json") != first for n in range(5))
    assert kept_told(client, prepare(quick("fafi")).spec, tmp_path / "exact.json").samples == 40
    assert not (tmp_path / "exact.json").exists()


def test_clients_with_data_of_their_own_never_draw_noise_from_the_seed() -> None:
    assert seeded(make_spec(method="fafi"))
    assert not seeded(make_spec(method="fafi", recipe="own"))
    assert not seeded(make_spec(method="fafi", noise_source="system"))
