"""What a record tells of clients: what they held, what they sent, what they cost, how good they are alone."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fedshot.evaluate import Alone
from fedshot.local.work import peak_memory
from fedshot.partition.own import as_told
from fedshot.privacy.accountant import Spent
from fedshot.record import ClientRecord
from fedshot.server import Received, sent
from fedshot.setting import Setting
from fedshot.store import ClientSummary, RunFolder

NOBODY: Mapping[int, str] = MappingProxyType({})


def client_records(
    setting: Setting, folder: RunFolder, received: Received, alone: Alone, absent: Mapping[int, str] = NOBODY
) -> tuple[ClientRecord, ...]:
    """Each client: what it sent for this fusion rule, what it cost, how good it is alone."""
    uploads = {m.upload.header.client: sent(m.upload, setting.fusion) for m in received.members}
    accuracy = dict(zip(uploads, alone.accuracies, strict=True))
    per_class = dict(zip(uploads, alone.per_class, strict=True))
    personalised = dict(zip(uploads, alone.personalised, strict=True))
    records = []
    for number in range(setting.spec.clients):
        summary, upload = folder.finished(number), uploads.get(number)
        if summary is None and number in absent:
            summary = ClientSummary(id=number, samples=setting.partition.sizes[number], skipped=absent[number])
        if summary is None:
            raise RuntimeError(f"client {number} has not finished")
        records.append(
            ClientRecord(
                **summary.model_dump(include={"id", "samples", "validation_samples", "seconds", "not_captured"}),
                upload_bytes=upload.size if upload else 0,
                upload_sha256=upload.sha256 if upload else None,
                accuracy_alone=accuracy.get(number),
                per_class_alone=per_class.get(number),
                personalised_accuracy=personalised.get(number),
                skipped=received.missing.get(number),
            )
        )
    return tuple(records)


def partition_told(setting: Setting, clients: Sequence[ClientRecord], received: Received) -> dict[str, Any]:
    """Who holds what: the partition, or what clients with data of their own told of themselves."""
    if not setting.own:
        return setting.partition.summary()
    headers = [m.upload.header for m in received.members if m.upload.header.counts != "withheld"]
    told = {header.client: header.class_counts for header in headers}
    samples = [client.samples + client.validation_samples for client in clients]
    return as_told(samples, [told.get(client.id) or (0,) * setting.task.classes for client in clients])


def spent_of(setting: Setting, folder: RunFolder) -> dict[int, Spent | None]:
    """What training under noise has cost each client that has finished."""
    summaries = [folder.finished(number) for number in range(setting.spec.clients)]
    return {summary.id: summary.spent for summary in summaries if summary}


def peak_memory_of(setting: Setting, folder: RunFolder) -> int:
    """The largest of any client's process and the server's."""
    summaries = [folder.finished(number) for number in range(setting.spec.clients)]
    return max([peak_memory(setting.device), *(s.peak_memory_bytes for s in summaries if s)])
