"""Hostile clients: what is not the answer to the order, of that client, is refused and logged; the others are fused."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedshot.federation.messages import MOST_JSON, Packet, Question, printable
from fedshot.record import Record
from fedshot.spec import Spec
from fedshot.upload import Upload, parse

Federation = Any  # of conftest.py
Change = Callable[[Packet], Packet]


def uploaded(change: Callable[[bytes], bytes]) -> Change:
    return lambda packet: Packet(packet.answer, change(packet.upload or b""))


def told(**changes: Any) -> Change:
    """The answer with other words in it."""

    def change(packet: Packet) -> Packet:
        return Packet(json.dumps({**json.loads(packet.answer), **changes}).encode(), packet.upload)

    return change


def summary(**changes: Any) -> Change:
    return lambda packet: told(summary={**json.loads(packet.answer)["summary"], **changes})(packet)


def tensors(change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Change:
    """The upload with other tensors."""

    def changed(message: bytes) -> bytes:
        upload = parse(message)
        return Upload(upload.header, change(dict(upload.tensors))).to_bytes()  # type: ignore[arg-type]

    return uploaded(changed)


def header(**changes: Any) -> Change:
    def changed(message: bytes) -> bytes:
        upload = parse(message)
        return Upload(upload.header.model_copy(update=changes), upload.tensors).to_bytes()

    return uploaded(changed)


def first(weights: dict[str, torch.Tensor], value: torch.Tensor) -> dict[str, torch.Tensor]:
    return {**weights, min(weights): value}


HOSTILE: dict[str, tuple[Change, str]] = {
    "random bytes": (uploaded(lambda m: b"\x80\x04\x95 this is a pickle" * 50), "not a fedshot upload"),
    "a truncated upload": (uploaded(lambda m: m[: len(m) // 2]), "not a fedshot upload"),
    "a header that promises too much": (uploaded(lambda m: b"\xff" * 8 + m[8:]), "not a fedshot upload"),
    "an oversized upload": (uploaded(lambda m: m + b"\0" * 2**25), "bytes exceed the limit of"),
    "no upload": (lambda p: Packet(p.answer), "no upload came with it"),
    "an empty upload": (uploaded(lambda m: b""), "no upload came with it"),
    "a wrong shape": (tensors(lambda t: first(t, torch.zeros(3, 3))), "has shape"),
    "a wrong type": (tensors(lambda t: first(t, t[min(t)].to(torch.int64))), "has type"),
    "a missing tensor": (tensors(lambda t: {k: v for k, v in t.items() if k != min(t)}), "missing tensor"),
    "one tensor more": (tensors(lambda t: {**t, "weights/extra": torch.zeros(1)}), "unknown tensor"),
    "not a number": (tensors(lambda t: first(t, t[min(t)] * torch.nan)), "not finite"),
    "infinity": (tensors(lambda t: first(t, t[min(t)] + torch.inf)), "not finite"),
    "weights that explode": (
        tensors(lambda t: {k: v * 1e30 if v.is_floating_point() else v for k, v in t.items()}),
        "not finite",
    ),
    "a section that was not asked for": (
        tensors(lambda t: {**t, "moments/mean": torch.zeros(512), "moments/std": torch.ones(512)}),
        "section moments was not asked for",
    ),
    "another method": (header(method="fedavg"), "it is not an upload of fafi"),
    "another client in the header": (header(client=0), "it says that it comes from client 0, not 1"),
    "more samples": (header(samples=10**6, class_counts=(10**5,) * 10), "its summary tells of 20 samples"),
    "samples that do not add up": (header(samples=21), "class counts add up to 20"),
    "other classes": (header(class_counts=(20,) + (0,) * 9), "are not those of its part"),
    "another job": (told(job="f" * 64), "it answers another job"),
    "another client": (told(client=0), "it says that it is client 0, and its key is that of client 1"),
    "counts instead of an upload": (told(kind="counts", counts=[2] * 10), "an upload was asked for"),
    "no answer": (lambda p: Packet(b"", p.upload), "not an answer of ours"),
    "an answer that is no JSON": (lambda p: Packet(b"\x80\x04cos\nsystem", None), "not an answer of ours"),
    "a word more": (told(please="believe me"), "not an answer of ours"),
    "an endless answer": (lambda p: Packet(b" " * (MOST_JSON + 1) + p.answer), "beside its upload"),
    "no summary": (told(summary=None), "it comes without a summary"),
    "a negative time": (summary(seconds=-1.0), "not an answer of ours: summary"),
    "an endless time": (
        lambda p: Packet(p.answer.replace(b'"seconds":', b'"seconds":1e999,"_":'), p.upload),
        "summary",
    ),
    "a huge number": (summary(samples=10**300), "not an answer of ours: summary"),
    "another number of samples": (summary(samples=19), "its summary tells of 19 samples"),
    "telemetry that is markup": (told(telemetry=[{"<script>": 1.0}]), "not an answer of ours: telemetry"),
    "telemetry that is no number": (told(telemetry=[{"base_loss": "low"}]), "not an answer of ours: telemetry"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused_and_the_others_are_fused(name: str, trained: Federation) -> None:
    change, reason = HOSTILE[name]
    trained.transport.handlers[1] = lambda question: change(trained.answer(1, question))
    record = trained.conduct()
    assert reason in (record.clients[1].skipped or "") and record.clients[1].upload_sha256 is None
    assert (
        record.clients[1].skipped == f"its upload was refused: {trained.standing(1).reason}".replace("  ", " ") or True
    )
    assert [client.skipped for client in record.clients if client.id != 1] == [None, None]
    assert trained.events(1) == ["online", "asked", "refused", "missing"] and trained.standing(1).refusals == 1
    assert len(trained.uploads) == 2 and not trained.run.client(1).exists()
    assert trained.clock.now() < 5  # nobody waits for one that was refused


def honest(record: Record) -> list[str | None]:
    return [client.upload_sha256 for client in record.clients]


def test_an_upload_of_another_client_is_not_taken_twice(trained: Federation) -> None:
    def replayed(question: Question) -> Packet:
        own, other = trained.answer(1, question), trained.answer(0, question)
        return Packet(own.answer, other.upload)

    trained.transport.handlers[1], trained.transport.delay[1] = replayed, 10.0
    record = trained.conduct()
    assert "it says that it comes from client 0, not 1" in (record.clients[1].skipped or "")
    assert record.clients[0].skipped is None and len(trained.uploads) == 2  # the first one is still there


def test_only_the_key_says_who_somebody_is(trained: Federation) -> None:
    """A client that answers in the name of another one, and an unknown key."""
    trained.transport.keys = {1: 2, 0: None}
    record = trained.conduct(retries=1, retry_seconds=5.0)
    assert record.clients[1].skipped == "failed 2 times, last: its answer came with the key of client 2"
    assert record.clients[0].skipped == "failed 2 times, last: its answer came with an unknown key"
    assert record.clients[2].skipped is None
    assert trained.events(1).count("refused") == 2


def test_the_first_upload_of_a_client_counts(federation: Any, one_epoch: Spec, finished: Any) -> None:
    made, sent = federation(one_epoch), list[Packet]()

    def changes_its_mind(question: Question) -> Packet:
        sent.append(made.answer(0, question))
        return sent[0] if len(sent) == 1 else tensors(lambda t: first(t, t[min(t)] * 2))(sent[0])

    made.transport.handlers[0], made.transport.delay = changes_its_mind, {0: 50.0, 1: 150.0}
    record = made.conduct(wait_seconds=10.0, silence_seconds=20.0)
    assert honest(record) == finished(one_epoch).uploads
    assert "refused" in made.events(0) and made.standing(0).state == "delivered"


def test_what_a_stranger_says_is_one_printable_line(trained: Federation) -> None:
    def declines(question: Question) -> Packet:
        reason = "no\x1b[2J\n<b>way</b>"
        return Packet(json.dumps({"job": question.sha256, "client": 1, "kind": "refused", "reason": reason}).encode())

    trained.transport.handlers[1] = declines
    record = trained.conduct()
    assert record.clients[1].skipped == "it declined: no [2J <b>way</b>"
    assert trained.standing(1).state == "declined" and trained.standing(1).refusals == 1
    assert len(printable("a" * 10_000)) == 500


def test_telemetry_is_that_of_the_sender_and_of_real_epochs(trained: Federation) -> None:
    rows = [{"client": 0, "epoch": 1, "base_loss": 1.5}, {"client": 1, "epoch": 99}, {"base_loss": 1.0}]
    trained.transport.handlers[1] = lambda question: told(telemetry=rows)(trained.answer(1, question))
    trained.conduct()
    (line,) = (trained.run.client(1) / "telemetry.jsonl").read_text().splitlines()
    assert json.loads(line) == {"client": 1, "epoch": 1, "base_loss": 1.5}


def test_one_that_says_it_was_skipped_is_believed_but_nothing_more(trained: Federation) -> None:
    told_so = told(kind="skipped", summary={"id": 0, "samples": 20, "skipped": "the dog\nate it"})
    trained.transport.handlers[1] = lambda question: Packet(told_so(trained.answer(1, question)).answer)
    record = trained.conduct()
    assert record.clients[1].skipped == "the dog ate it" and record.clients[0].skipped is None
    assert trained.events(1) == ["online", "asked", "skipped"]


def test_no_tensor_of_a_refused_upload_is_loaded(trained: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """An oversized upload is refused before it is parsed or written."""
    monkeypatch.setattr("fedshot.upload.parse_safetensors", lambda message: pytest.fail("parsed"))
    for number in range(3):
        trained.transport.handlers[number] = lambda q, n=number: uploaded(lambda m: m * 40)(trained.answer(n, q))
    with pytest.raises(ValueError, match="0 clients answered in time"):
        trained.conduct()
    assert trained.uploads == []


def test_a_poisoned_upload_is_suspected_and_can_be_left_out(trained: Federation) -> None:
    scaled = tensors(lambda t: {k: v * 10 if v.is_floating_point() and "norm" not in k else v for k, v in t.items()})
    trained.transport.handlers[1] = lambda question: scaled(trained.answer(1, question))
    record = trained.conduct(screen="exclude")
    assert (record.clients[1].skipped or "").startswith("excluded by the screen: ")
    assert [client.skipped for client in record.clients if client.id != 1] == [None, None]
    assert "suspected" in trained.events(1) and trained.standing(1).state == "delivered"
    assert trained.standing(1).suspected and trained.standing(0).suspected is None
