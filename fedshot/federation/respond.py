"""A client's side of a conversation: the server's question in, one answer out, from disk if it is there already."""

import json

from fedshot.errors import UserError
from fedshot.federation.labour import Labour, epoch_of, failure_of, in_a_process, is_held, ready
from fedshot.federation.messages import Answer, AnswerKind, Packet, Question, pack, printable
from fedshot.federation.order import Order, check_job, read_order
from fedshot.federation.site import JobFolder, Site, SiteFile
from fedshot.store import write_atomic

MOST_WAIT_SECONDS = 600.0  # for a training under way, before a client says that it is busy


def respond(site: Site, question: Question, labour: Labour = in_a_process) -> Packet:
    """The answer to a question. Whatever goes wrong is an answer as well: a client never leaves the server waiting."""
    settings = site.read()

    def say(kind: AnswerKind, reason: str) -> Packet:
        return pack(Answer(job=question.sha256, client=settings.number, kind=kind, reason=printable(reason)))

    try:
        order = read_order(question.order, question.sha256)
        check_job(order, question.job)
        if order.kind == "announce":
            return _announce(settings, order)
        return _train(site, settings, order, question, labour)
    except UserError as error:
        return say("refused", str(error))
    except Exception as error:
        return say("failed", f"{type(error).__name__}: {error}")


def _announce(settings: SiteFile, order: Order) -> Packet:
    from fedshot.federation.holdings import client_setting

    counts = tuple(client_setting(settings, order).class_counts(settings.number))
    return pack(Answer(job=order.sha256, client=settings.number, kind="counts", counts=counts))


def _train(site: Site, settings: SiteFile, order: Order, question: Question, labour: Labour) -> Packet:
    job, number = site.job(order.sha256), settings.number
    if not ready(job, number):
        _open(job, order, question)
        labour(site, job, min(question.wait_seconds, MOST_WAIT_SECONDS))
    if ready(job, number):
        return _from_disk(job, number, order.sha256)
    if is_held(job.lock):
        return pack(Answer(job=order.sha256, client=number, kind="busy", epoch=epoch_of(job)))
    reason, final = failure_of(job)
    kind: AnswerKind = "refused" if final else "failed"
    return pack(Answer(job=order.sha256, client=number, kind=kind, reason=printable(reason)))


def _open(job: JobFolder, order: Order, question: Question) -> None:
    """Writes down what was asked: a job that was begun can be ended without the server."""
    if job.order.exists():
        return
    if question.job is not None:
        write_atomic(job.job, question.job)
    write_atomic(job.spec, order.spec.model_dump_json(indent=1).encode())
    write_atomic(job.order, order.to_bytes())  # the last one: a folder with it is complete


def _from_disk(job: JobFolder, number: int, sha256: str) -> Packet:
    summary = job.finished(number)
    if summary is None:
        raise RuntimeError("a job that has ended has a summary")
    lines = (job.client(number) / "telemetry.jsonl").read_bytes().splitlines()
    kind: AnswerKind = "skipped" if summary.skipped else "upload"
    answer = Answer(job=sha256, client=number, kind=kind, summary=summary, telemetry=tuple(map(json.loads, lines)))
    return pack(answer, None if summary.skipped else job.outgoing.read_bytes())
