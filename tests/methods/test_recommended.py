"""The recommended method: settings that it brings along, what its clients send, and that it beats its parent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedshot.cli.settings import build_spec
from fedshot.errors import UserError
from fedshot.experiment import Execution, run
from fedshot.fusion import FUSIONS, make_fusion
from fedshot.method import Client
from fedshot.methods.fafi import fafi
from fedshot.methods.recommended import recommended
from fedshot.prepare import prepare
from fedshot.sections import ROUTING
from fedshot.server import fuse_again
from fedshot.spec import Spec, make_spec
from fedshot.store import RunFolder
from fedshot.upload import parse

Quick = Callable[..., Spec]
FinishedRun = Callable[[Spec], Any]
SETTINGS = {
    "validation": 0.1,
    "validation_most": 256,
    "lr": 0.1,
    "schedule": "cosine",
    "weight_decay": 5e-4,
    "upload_precision": "bf16",
}


def chosen(spec: Spec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in SETTINGS}


def test_settings_of_a_method_are_filled_in_where_none_is_given(quick: Quick) -> None:
    assert recommended().settings == SETTINGS and not fafi().settings
    assert chosen(prepare(quick("recommended")).spec) == SETTINGS
    assert chosen(prepare(quick("fafi")).spec) == chosen(make_spec(method="fafi"))


@pytest.mark.parametrize(
    "given", [{"lr": 0.02, "validation_most": 9}, {"lr": 0.05, "schedule": "constant", "upload_precision": "fp32"}]
)
def test_what_is_given_goes_before_settings_of_the_method(given: dict[str, Any], quick: Quick) -> None:
    """A default of every other method, typed, is given too."""
    assert chosen(prepare(quick("recommended", **given)).spec) == {**SETTINGS, **given}


def test_who_gives_the_share_of_validation_images_gets_it_without_the_bound_of_the_method(quick: Quick) -> None:
    assert chosen(prepare(quick("recommended", validation=0.3)).spec) == {
        **SETTINGS,
        "validation": 0.3,
        "validation_most": None,
    }


def test_a_large_client_holds_back_no_more_than_it_needs() -> None:
    data = "synthetic:images=6000,test=10"
    sizes = {"clients": 2, "alpha": 1000.0, "encoder": "cnn"}
    setting = prepare(make_spec(method="recommended", data=data, **sizes))
    held_out = [len(client.validation or ()) for client in map(setting.client, range(2)) if isinstance(client, Client)]
    assert held_out == [256, 256]


@pytest.mark.parametrize(("images", "given", "batch"), [(10_000, None, 128), (2_000, None, 32), (10_000, 256, 256)])
def test_batches_are_small_where_none_are_given(images: int, given: int | None, batch: int) -> None:
    data = f"synthetic:images={images},test=10"
    spec = make_spec(method="recommended", data=data, batch_size=given, encoder="cnn")
    assert prepare(spec).spec.batch_size == batch


def test_evaluation_points_leave_the_settings_of_the_method() -> None:
    spec = build_spec("recommended", {"epochs": 4, "lr": 0.02}, None, "every:2")
    assert spec.evaluate_at == (2, 4)
    assert chosen(prepare(spec).spec) == {**SETTINGS, "lr": 0.02}


def test_a_complete_spec_stays_as_it_is(quick: Quick) -> None:
    complete = prepare(quick("recommended", lr=0.05)).spec
    again = Spec.model_validate_json(complete.model_dump_json())
    assert again == complete == prepare(again).spec
    assert prepare(again).spec.sha256 == complete.sha256


OWN = """
from dataclasses import replace

from fedshot.method import Method
from fedshot.methods.fafi import fafi


def mine() -> Method:
    return replace(fafi(), name="mine", settings={settings})
"""


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"validaton": 0.1}, "did you mean 'validation'"),
        ({"lr": -1.0}, "lr = -1.0: it should be greater than 0"),
        ({"evaluate_at": (9,)}, "evaluation point 9 lies after the last of 2 epochs"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_training(
    settings: dict[str, Any], reason: str, quick: Quick, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(OWN.format(settings=settings))
    spec = make_spec(method=str(tmp_path / "mine.py"), epochs=2)
    with pytest.raises(UserError, match=reason):
        prepare(spec)


def test_settings_stand_in_the_record_and_a_run_is_resumed(quick: Quick, finished: FinishedRun, tmp_path: Path) -> None:
    spec, folder = quick("recommended", evaluate_at=()), RunFolder(tmp_path / "run")
    first = run(spec, folder.path)
    assert chosen(first.spec) == SETTINGS and first.spec.fusion == "routed"
    assert all(client.validation_samples > 1 for client in first.clients)
    folder.record.unlink()
    folder.upload(1).unlink()
    again = run(spec, folder.path, Execution(resume=True))
    assert again.result_sha256 == first.result_sha256


def test_an_upload_carries_half_weights_and_what_routing_needs(quick: Quick, finished: FinishedRun) -> None:
    done = finished(quick("recommended"))
    sent = parse(done.folder.upload(0).read_bytes())
    assert sent.header.precision == "bf16" and sent.sections == {"weights", *ROUTING}
    assert done.record.clients[0].upload_bytes == sent.only(make_fusion("routed").needs).size
    assert [client.upload_bytes for client in done.record.clients] == pytest.approx([972_000] * 3, rel=0.01)


def test_every_rule_is_tried_on_its_uploads_or_says_why_not(quick: Quick, finished: FinishedRun) -> None:
    done = finished(quick("recommended"))
    rows = fuse_again(
        prepare(done.record.spec), done.folder, [name for name in FUSIONS if name not in ("otfusion", "single")]
    )
    errors = {row["fusion"]: row["error"] for row in rows if "error" in row}
    by_name = {row["fusion"]: row for row in rows if "error" not in row}
    assert errors.keys() == {"typicality", "shared_base", "distilled"}
    assert "which clients of recommended do not send: choose another rule, e.g. routed" in errors["typicality"]
    assert "has no base to share" in errors["shared_base"]
    assert by_name["routed"]["accuracy"] == done.record.final.accuracy
    assert (by_name["common"]["models_kept"], by_name["routed"]["models_kept"]) == (0, 3)


@pytest.mark.parametrize(
    ("method", "fusion", "lacks"),
    [
        ("fafi", "routed", "common, turned_familiarity, reliability"),
        ("fafi", "common", "common"),
        ("recommended", "typicality", "familiarity"),
    ],
)
def test_a_rule_that_reads_what_nobody_sends_is_refused_before_training(
    method: str, fusion: str, lacks: str, quick: Quick
) -> None:
    with pytest.raises(UserError, match=f"fusion {fusion} needs {lacks}, which clients of {method} do not send"):
        prepare(quick(method, fusion=fusion, validation=0.1))


EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_options_of_the_method_are_those_of_its_rule(quick: Quick, tmp_path: Path) -> None:
    as_method, as_rule = (
        prepare(quick("recommended", options, fusion=fusion)).spec
        for options, fusion in (({"sharpness": 2.0, "share": 0}, None), ({}, "routed:sharpness=2,share=0"))
    )
    assert as_method == as_rule and as_rule.options["sharpness"] == 2.0 and as_rule.fusion == "routed"
    with pytest.raises(UserError, match="ridge is an option of method 'recommended' and of its rule 'routed'"):
        prepare(quick("recommended", {"ridge": 1.0}, fusion="routed:sharpness=2"))
    with pytest.raises(UserError, match="sharpnes"):
        prepare(quick("recommended", fusion="routed:sharpnes=2"))
    with pytest.raises(UserError, match="common does not read it: give it to that rule, --fusion common:ridge=1"):
        prepare(quick("recommended", {"ridge": 1.0}, fusion="common"))
    own = tmp_path / "own.py"
    own.write_text((EXAMPLES / "confident_vote.py").read_text().replace('Fusion("confident_vote"', 'Fusion("routed"'))
    with pytest.raises(UserError, match=r"own\.py does not read it$"):  # whatever the rule calls itself
        prepare(quick("recommended", {"ridge": 1.0}, fusion=str(own)))
    with pytest.raises(UserError, match=r"fusion single does not read it$"):
        prepare(quick("recommended", {"share": 1.0}, fusion="single"))


def test_it_soon_beats_fafi_on_digits() -> None:
    shared = {"data": "digits:images=700", "epochs": 3, "alpha": 0.05, "seed": 1}
    found = {name: run(make_spec(method=name, **shared)).final for name in ("recommended", "fafi")}
    assert found["recommended"].accuracy > 0.85
    assert found["recommended"].accuracy > found["fafi"].accuracy + 0.15
