"""Clients of which nothing was fused, and clients that hardly trained."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedshot.explain.commands import again, command
from fedshot.explain.diagnoses.stages import STAGE
from fedshot.explain.finding import Fact, Finding, Series, listed
from fedshot.explain.run import Row, Run, complete
from fedshot.local.step import batch_sizes
from fedshot.record import ClientRecord
from fedshot.report.wording import number_of

FEW_STEPS = 20  # momentum 0.9 averages over ten steps; below twice that the optimiser is still starting up
HARDLY_FELL = 0.1  # a loss within a tenth of its first epoch's has not been learned
UNKNOWN = 0.5  # recognises less than half of the test images of the classes that it holds
FEWEST_EPOCHS = 5  # in fewer a loss has no time to fall
_LOSSES = ("loss_classification", "loss_balanced_softmax", "base_loss")  # the first that a method has


def client_diverged(run: Run) -> list[Finding]:
    """A loss or a model that is not finite any more."""
    gone = [client for client in run.record.clients if client.skipped and "diverged" in client.skipped]
    if not gone:
        return []
    first, spec = gone[0], run.record.spec
    rows = run.rows.get(first.id, ())
    known = complete(rows, "base_loss", "grad_norm")
    ended = max((int(row["epoch"] or 0) for row in rows), default=0)
    facts = [Fact("learning rate", spec.lr), Fact("clip limit (0: none)", spec.clip), *_weight(rows)]
    limit = 2 * (1 + spec.momentum)
    decays = spec.optimizer == "sgd" and spec.lr * spec.weight_decay > limit
    if decays:
        facts.append(Fact("learning rate × weight decay", spec.lr * spec.weight_decay, "", f"> 2(1 + m) = {limit:g}"))
    if known:
        facts.append(Fact("base loss, last finite epoch", known[-1]["base_loss"]))
        facts.append(Fact("gradient norm, last finite epoch", known[-1]["grad_norm"]))
    return [
        Finding(
            "client_diverged",
            "severe",
            f"Training diverged in {listed([c.id for c in gone], 'client')} of {len(run.record.clients)} (client "
            f"{first.id} in epoch {ended}, lr {spec.lr:g}): nothing of it was fused{_lost(run, gone)}.",
            tuple(facts),
            "A step that is longer than the curvature allows grows the next gradient; SGD with momentum m is stable "
            "only for lr < 2(1 + m)/curvature. What is not finite cannot be fused."
            + (" The weight decay alone breaks this: its curvature is the decay itself." if decays else ""),
            (
                f"A smaller learning rate: {again(spec, {'lr': spec.lr / 10})}",
                *(() if spec.clip else (f"Clip the gradients: {again(spec, {'clip': 1.0})}",)),
                *(() if spec.warmup else (f"Let the rate rise slowly: {again(spec, {'warmup': 0.1})}",)),
            ),
            tuple(client.id for client in gone),
            (ended, ended) if ended else None,
            (Series(f"base loss, client {first.id}", *_columns(known, "base_loss"), log=True),)
            if len(known) > 1
            else (),
        )
    ]


def _columns(rows: Sequence[dict[str, float]], name: str) -> tuple[tuple[int, ...], tuple[float, ...]]:
    return tuple(int(row["epoch"]) for row in rows), tuple(row[name] for row in rows)


def _weight(rows: Sequence[Row]) -> list[Fact]:
    known = [row for row in complete(rows, "lambda_effective") if row["lambda_effective"] > 0]
    return [Fact("λ, last known", known[-1]["lambda_effective"])] if known else []


def client_skipped(run: Run) -> list[Finding]:
    """Too few samples, a refused upload, a lost file."""
    gone = [client for client in run.record.clients if client.skipped and "diverged" not in client.skipped]
    if not gone:
        return []
    samples = sum(client.samples for client in gone)
    everyone = sum(client.samples for client in run.record.clients)
    lost = _lost(run, gone)
    refused = any("refused" in (client.skipped or "") for client in gone)
    return [
        Finding(
            "client_skipped",
            "severe" if lost else "warning",
            f"Nothing of {listed([c.id for c in gone], 'client')} was fused: {gone[0].skipped}{lost}.",
            (
                Fact("clients left out", len(gone), "", "≥ 1"),
                Fact("their samples", samples),
                Fact("share of all samples", samples / max(everyone, 1), "%"),
                *(Fact(f"client {client.id}", client.skipped or "") for client in gone[:6]),
            ),
            "The server refuses an upload whose names, shapes or values are not those of the job."
            if refused
            else "BatchNorm needs two samples in a batch, so a client with fewer cannot train.",
            (_for_skipped(run, refused),),
            tuple(client.id for client in gone),
        )
    ]


def _for_skipped(run: Run, refused: bool) -> str:
    spec = run.record.spec
    if refused:
        return (
            "Train the refused clients again: remove record.json and their folders under clients/, and run the command "
            "again."
        )
    if spec.partition_file:
        return f"Give every client two images or more in {spec.partition_file}."
    return f"Divide the data over fewer clients: {again(spec, {'clients': max(len(run.fused), 1)})}"


def _lost(run: Run, gone: Sequence[ClientRecord]) -> str:
    """Which classes nobody else holds, in words; empty if none."""
    columns = enumerate(zip(*run.class_counts, strict=True))
    lost = [c for c, held in columns if any(held[g.id] for g in gone) and not any(held[k] for k in run.fused)]
    return f", and nobody else holds {listed(lost, 'class')}" if lost else ""


def client_hardly_trained(run: Run) -> list[Finding]:
    """Few steps, or a loss that stayed where it was, in a client that does not know its own classes."""
    found = {c.id: case for c in run.record.clients if c.skipped is None and (case := _hardly(run, c))}
    if not found:
        return []
    worst = min(found, key=lambda number: found[number].steps)
    case, spec = found[worst], run.record.spec
    who = listed([*found], "client").capitalize()
    return [
        Finding(
            "client_hardly_trained",
            "severe" if len(found) == len(run.fused) else "warning",
            f"{who} hardly trained: client {worst} took {number_of(case.steps, 'step')} on {case.samples} samples, "
            f"{_course(case, spec.epochs)}and it recognises {case.known:.0%} of the test images of its own classes.",
            (
                Fact("steps in the whole run", case.steps, "", f"< {FEW_STEPS}, or"),
                Fact("fall of its loss", case.fell, "%", f"< {HARDLY_FELL:.0%}; and"),
                Fact("accuracy on the classes that it holds", case.known, "%", f"< {UNKNOWN:.0%}"),
                Fact("samples", case.samples),
                Fact("clients that hardly trained", f"{len(found)} of {len(run.fused)}"),
            ),
            f"A client takes epochs × ⌈samples/batch⌉ steps, here {spec.epochs} × ⌈{case.samples}/{spec.batch_size}⌉, "
            "and what so few steps leave is close to the shared start."
            if case.steps < FEW_STEPS
            else f"In {case.steps} steps its loss fell by {case.fell:.0%}: steps of this length do not teach it.",
            (
                f"More epochs: {again(spec, {'epochs': 4 * spec.epochs})}",
                f"Smaller batches: {again(spec, {'batch_size': max((spec.batch_size or 32) // 4, 2)})}",
                *(
                    ("What if it had not come? " + command("fuse", run.path, "--without", worst),)
                    if len(run.fused) > 1
                    else ()
                ),
            ),
            tuple(found),
            (1, spec.epochs),
        )
    ]


def _course(case: "_Hardly", epochs: int) -> str:
    """How its loss went, in words; one epoch has no course."""
    return f"its loss went from {case.first:.3g} to {case.last:.3g}, " if epochs > 1 else ""


@dataclass(frozen=True)
class _Hardly:
    steps: int
    samples: int
    first: float  # loss of the first epoch
    last: float
    known: float  # accuracy on the classes that it holds

    @property
    def fell(self) -> float:
        return 1 - self.last / self.first if self.first > 0 else 0.0


def _hardly(run: Run, client: ClientRecord) -> _Hardly | None:
    """The numbers of a client that hardly trained; None for one that did, or of which too little is known."""
    spec, known = run.record.spec, _known(run, client)
    rows = [row for row in run.rows.get(client.id, ()) if not row.get(STAGE)]  # which trains by other losses
    losses = next((found for name in _LOSSES if (found := _columns(complete(rows, name), name)[1])), ())
    if not losses or known is None or not spec.batch_size:
        return None
    steps = spec.epochs * len(batch_sizes(client.samples, spec.batch_size))
    case = _Hardly(steps, client.samples, losses[0], losses[-1], known)
    stuck = len(losses) >= FEWEST_EPOCHS and case.fell < HARDLY_FELL
    return case if known < UNKNOWN and (steps < FEW_STEPS or stuck) else None


def _known(run: Run, client: ClientRecord) -> float | None:
    """Accuracy of the client alone on the classes that it holds, weighted by its samples."""
    if client.per_class_alone is None or not run.class_counts:
        return None
    pairs = zip(run.class_counts[client.id], client.per_class_alone, strict=False)
    held = [(count, share) for count, share in pairs if count and share is not None]
    total = sum(count for count, _ in held)
    return sum(count * share for count, share in held) / total if total else None
