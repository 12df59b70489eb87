"""What would leave a client, field by field with bytes, before it leaves: from the client's own data, untrained."""

import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedshot.data.dataset import Labelled
from fedshot.errors import UserError
from fedshot.local.telemetry import Row
from fedshot.local.train import Bench, steps
from fedshot.local.work import upload_of
from fedshot.method import Client
from fedshot.models.copies import copy_of
from fedshot.privacy.client import guarantee, told, told_row, training_of
from fedshot.privacy.randomness import seeded
from fedshot.privacy.told import HEADER, SUMMARY, TELEMETRY, tells
from fedshot.setting import Setting
from fedshot.store import ClientSummary, RunFolder
from fedshot.upload import Upload, parse

_LONGEST_NUMBER = -2.2250738585072014e-308  # no float takes more characters in JSON


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class FieldPreview(Frozen):
    """A field of the header or of the summary."""

    name: str
    value: Any
    known: bool  # False for what only training will tell
    says: str


class TensorPreview(Frozen):
    name: str
    shape: tuple[int, ...]
    type: str
    bytes: int


class SectionPreview(Frozen):
    """A section of the upload."""

    name: str
    says: str
    shows_counts: str  # what it shows of class counts, for sure; empty if nothing
    tensors: tuple[TensorPreview, ...]
    bytes: int


class Preview(Frozen):
    """Everything that one client sends. Bytes are those of the message; where `exact` is false, the most it can have.

    Not counted: what the network adds (TLS, HTTP, the engine's envelope).
    """

    client: int
    fusion: str
    exact: bool
    header: tuple[FieldPreview, ...]
    header_bytes: int  # with the names and places of all tensors
    sections: tuple[SectionPreview, ...]
    upload_bytes: int
    telemetry_rows: int
    telemetry_columns: tuple[str, ...]
    telemetry_says: str
    telemetry_bytes: int
    summary: tuple[FieldPreview, ...]
    summary_bytes: int
    stays: tuple[str, ...]  # sections that the client could make and does not send
    total_bytes: int


def preview(
    setting: Setting,
    number: int,
    sections: Collection[str] | None = None,
    job: Mapping[str, Tensor] | None = None,
) -> Preview:
    """What client `number` would send in this run, without training it.

    The upload is made from the untrained model, so that every shape, type and byte is real; only the accuracy on
    held-out images and the telemetry have more or fewer digits after training.

    Args:
        sections: that may leave; those that the fusion rule needs if not given.
        job: what the server sends with the job; made here if not given.
    """
    if job is None:
        broadcast = setting.method.broadcast
        job = broadcast(setting.opening()) if broadcast else {}
    client = setting.client(number, job)
    if isinstance(client, str):
        raise UserError(f"client {number} would send nothing: {client}")
    wanted = tuple(setting.fusion.needs) if sections is None else tuple(sections)
    upload = upload_of(setting, client, client.model, wanted).only(wanted)
    sizes = {replace(upload, header=header).size for header in _headers(upload, client)}
    row, numbers = _row(setting, client), told(client, setting.spec)
    rows = [{**row, "epoch": epoch} for epoch in range(1, setting.spec.epochs + 1)]
    summary = ClientSummary(
        id=number,
        samples=numbers.samples,
        validation_samples=numbers.validation_samples,
        seconds=12345.678901234567,
        peak_memory_bytes=10**12,
        spent=guarantee(setting.spec, client),
    )
    return _told(
        setting,
        upload,
        upload_bytes=max(sizes),
        exact=len(sizes) == 1 and not _drawn_again(setting),
        rows=rows,
        telemetry_bytes=_telemetry_bytes(rows),
        summary=summary,
        unknown=(
            *("seconds", "peak_memory_bytes", "not_captured"),
            *(("validation_accuracy",) if upload.header.validation_accuracy is not None else ()),
        ),
    )


def preview_of_finished(
    setting: Setting, folder: RunFolder, number: int, sections: Collection[str] | None = None
) -> Preview:
    """The same of a client that has finished: its real upload, telemetry and summary."""
    summary = folder.finished(number)
    if summary is None or not folder.upload(number).exists():
        raise UserError(f"client {number} has not finished: there is nothing of it to send")
    wanted = tuple(setting.fusion.needs) if sections is None else tuple(sections)
    upload = parse(folder.upload(number).read_bytes()).only(wanted)
    text = (folder.client(number) / "telemetry.jsonl").read_bytes()
    rows = [json.loads(line) for line in text.splitlines()]
    return _told(setting, upload, upload.size, True, rows, len(text), summary, unknown=())


def _told(
    setting: Setting,
    upload: Upload,
    upload_bytes: int,
    exact: bool,
    rows: list[Row],
    telemetry_bytes: int,
    summary: ClientSummary,
    unknown: Collection[str],
) -> Preview:
    sections = tuple(
        _section(upload, name) for name in ("weights", *setting.method.statistics) if name in upload.sections
    )
    summary_bytes = len(summary.model_dump_json())
    return Preview(
        client=upload.header.client,
        fusion=setting.fusion.name,
        exact=exact,
        header=_fields(upload.header.model_dump(), HEADER, unknown),
        header_bytes=upload_bytes - sum(section.bytes for section in sections),
        sections=sections,
        upload_bytes=upload_bytes,
        telemetry_rows=len(rows),
        telemetry_columns=tuple(rows[0]) if rows else (),
        telemetry_says=TELEMETRY,
        telemetry_bytes=telemetry_bytes,
        summary=_fields(summary.model_dump(), SUMMARY, unknown),
        summary_bytes=summary_bytes,
        stays=tuple(name for name in setting.method.statistics if name not in upload.sections),
        total_bytes=upload_bytes + telemetry_bytes + summary_bytes,
    )


def _fields(content: dict[str, Any], words: dict[str, str], unknown: Collection[str]) -> tuple[FieldPreview, ...]:
    return tuple(
        FieldPreview(name=name, value=value, known=True, says=words[name])
        if name not in unknown
        else FieldPreview(name=name, value=None, known=False, says=words[name])
        for name, value in content.items()
    )


def _section(upload: Upload, name: str) -> SectionPreview:
    tensors = tuple(
        TensorPreview(
            name=key.partition("/")[2],
            shape=tuple(tensor.shape),
            type=str(tensor.dtype).removeprefix("torch."),
            bytes=tensor.dtype.itemsize * math.prod(tensor.shape),
        )
        for key, tensor in upload.only((name,)).tensors.items()
    )
    said = tells(name)
    return SectionPreview(
        name=name, says=said.words, shows_counts=said.counts, tensors=tensors, bytes=sum(t.bytes for t in tensors)
    )


def _headers(upload: Upload, client: Client) -> Iterator[Any]:
    """The header with every accuracy on held-out images that takes another number of characters."""
    if upload.header.validation_accuracy is None or client.validation is None:
        yield upload.header
        return
    held_out = len(client.validation)
    by_length = {len(json.dumps(right / held_out)): right / held_out for right in range(held_out + 1)}
    for accuracy in by_length.values():
        yield upload.header.model_copy(update={"validation_accuracy": accuracy})


def _drawn_again(setting: Setting) -> bool:
    """Whether the numbers in the header will be others: noise of the system comes anew."""
    return setting.spec.counts.startswith("noised") and not seeded(setting.spec)


def _row(setting: Setting, client: Client) -> Row:
    """A real row of telemetry, from one epoch of a copy on two images."""
    two = Labelled(client.train.images[:2], client.train.labels[:2])
    few = replace(client, train=two, model=copy_of(client.model))
    spec = setting.spec.model_copy(update={"epochs": 1, "evaluate_at": (1,)})
    objective, bench = training_of(setting.method, few, spec, told(client, spec).class_counts, Bench(captured=False))
    found: list[Row] = []
    for _ in steps(few, objective, setting.method.views, spec, lambda epoch, model, row: found.append(row), bench):
        pass
    row = found[0]
    row["nearest_mean_agreement"] = None
    told_row(row, spec)
    return row


def _telemetry_bytes(rows: list[Row]) -> int:
    """The most that rows can take: every number but client and epoch as long as a number can be."""
    known = ("client", "epoch")
    longest = [{key: value if key in known else _LONGEST_NUMBER for key, value in row.items()} for row in rows]
    return sum(len(json.dumps(row)) + 1 for row in longest)
