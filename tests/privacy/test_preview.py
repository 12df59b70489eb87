"""The preview of what leaves a client is what then leaves it, byte for byte."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from fedshot.experiment import run
from fedshot.fusion import make_fusion
from fedshot.local.work import upload_of
from fedshot.method import Client
from fedshot.methods import METHODS
from fedshot.prepare import prepare
from fedshot.privacy.preview import Preview, preview, preview_of_finished
from fedshot.privacy.told import HEADER, SECTIONS, SUMMARY
from fedshot.spec import Spec
from fedshot.store import ClientSummary, RunFolder
from fedshot.upload import SECTIONS as ALL_SECTIONS
from fedshot.upload import Header, parse

Quick = Callable[..., Spec]


def test_every_field_and_section_has_its_words() -> None:
    assert set(HEADER) == set(Header.model_fields)
    assert set(SUMMARY) == set(ClientSummary.model_fields)
    sections = {name for make in METHODS.values() for name in make().statistics}
    assert set(SECTIONS) == {*ALL_SECTIONS, *sections}


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("fafi", {}),
        ("fafi", {"fusion": "moments"}),
        ("fafi", {"fusion": "nearest_prototype", "upload_precision": "int8"}),
        ("fafi", {"counts": "withheld", "upload_precision": "bf16"}),
        ("fedavg", {"counts": "noised:0.5"}),
    ],
)
def test_the_preview_has_the_bytes_of_the_real_upload(
    method: str, more: dict[str, Any], quick: Quick, finished: Callable
) -> None:
    done = finished(quick(method, **more))
    setting = prepare(done.record.spec)
    for number in range(3):
        found = preview(setting, number)
        sent = parse(done.folder.upload(number).read_bytes()).only(setting.fusion.needs)
        assert found.exact and found.upload_bytes == len(sent.to_bytes()) == done.record.clients[number].upload_bytes
        listed = {
            f"{section.name}/{tensor.name}": (tensor.shape, tensor.type, tensor.bytes)
            for section in found.sections
            for tensor in section.tensors
        }
        really = {
            name: (tuple(t.shape), str(t.dtype).removeprefix("torch."), t.nbytes) for name, t in sent.tensors.items()
        }
        assert listed == really
        assert {field.name: field.value for field in found.header} == sent.header.model_dump()
        assert_adds_up(found)


def assert_adds_up(found: Preview) -> None:
    assert found.upload_bytes == found.header_bytes + sum(section.bytes for section in found.sections)
    assert found.total_bytes == found.upload_bytes + found.telemetry_bytes + found.summary_bytes


def test_telemetry_and_summary_are_listed_and_bounded(quick: Quick, finished: Callable) -> None:
    done = finished(quick("etf"))
    found = preview(prepare(done.record.spec), 1)
    rows = done.rows(1)
    assert found.telemetry_rows == len(rows) == 2
    assert set(found.telemetry_columns) == set(rows[0])
    assert (done.folder.client(1) / "telemetry.jsonl").stat().st_size <= found.telemetry_bytes
    summary = (done.folder.client(1) / "client.json").read_text()
    assert {field.name for field in found.summary} == set(json.loads(summary))
    assert len(summary) <= found.summary_bytes


def test_an_accuracy_that_is_not_known_yet_makes_a_bound(quick: Quick, finished: Callable) -> None:
    done = finished(quick("fafi", validation=0.2))
    for number in range(3):
        found = preview(prepare(done.record.spec), number)
        real = done.record.clients[number].upload_bytes
        assert real == found.upload_bytes if found.exact else real <= found.upload_bytes <= real + 24
        assert not next(field for field in found.header if field.name == "validation_accuracy").known


def test_a_finished_client_is_listed_as_it_is(quick: Quick, finished: Callable) -> None:
    done = finished(quick("fafi", validation=0.2))
    setting = prepare(done.record.spec)
    found = preview_of_finished(setting, done.folder, 0, sections=("weights", "moments"))
    sent = parse(done.folder.upload(0).read_bytes()).only(("weights", "moments"))
    files = [done.folder.client(0) / name for name in ("telemetry.jsonl", "client.json")]
    assert found.exact and found.upload_bytes == len(sent.to_bytes())
    assert found.total_bytes == found.upload_bytes + sum(file.stat().st_size for file in files)
    assert_adds_up(found)


def test_sections_that_show_counts_are_named(quick: Quick) -> None:
    setting = prepare(quick("fafi", validation=0.2))
    shown = {section.name: section.shows_counts for section in preview(setting, 0, sections=ALL_SECTIONS).sections}
    assert set(shown) == set(ALL_SECTIONS)
    assert [name for name, what in shown.items() if not what] == ["weights", "moments"]
    alone = preview(setting, 0)
    assert [section.name for section in alone.sections] == ["weights"]
    assert alone.stays == ALL_SECTIONS[1:]


def test_a_preview_trains_nothing_and_tells_the_same_twice(quick: Quick) -> None:
    setting = prepare(quick("fafi"))
    client = setting.client(0)
    assert isinstance(client, Client)
    before = upload_of(setting, client, setting.initial_model, ("weights",)).sha256
    assert preview(setting, 0) == preview(setting, 0)
    assert upload_of(setting, client, setting.initial_model, ("weights",)).sha256 == before


def test_what_the_server_sends_with_the_job_is_made_where_it_is_missing(quick: Quick) -> None:
    setting = prepare(quick("split_announced"))
    found = preview(setting, 0)
    assert [section.name for section in found.sections] == list(make_fusion("shared_base").needs)


def test_of_a_private_run_no_statistics_and_no_losses_are_told(quick: Quick, tmp_path: Any) -> None:
    pytest.importorskip("opacus")
    spec = quick("fedavg", norm="group", dp_noise=1.0, counts="withheld", fusion="logits", evaluate_at=(), epochs=1)
    setting = prepare(spec)
    found = preview(setting, 0, sections=ALL_SECTIONS)
    record = run(spec, tmp_path / "run")
    assert [section.name for section in found.sections] == ["weights"]
    assert preview(setting, 0).upload_bytes == record.clients[0].upload_bytes
    finished = preview_of_finished(setting, RunFolder(tmp_path / "run"), 0)
    assert set(found.telemetry_columns) == set(finished.telemetry_columns)
    assert "spent" in {field.name for field in finished.summary}
