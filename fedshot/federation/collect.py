"""The server's loop: ask every client, wait, ask again, until all have answered or the time is over."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from fedshot.federation.desk import FINAL, Outcome
from fedshot.federation.ledger import BUSY, Ledger
from fedshot.federation.messages import Packet, Question
from fedshot.federation.plan import Plan
from fedshot.federation.transport import Clock, Failure, Transport, TransportDown

GIVE_UP_SECONDS = 120.0  # without a transport, after which the server stops: it can be started again

_NEVER_ONLINE = "was not online before the deadline"
_NOT_TAKEN = "the question was not taken by the engine"
_REFUSALS = {"refused": "its upload was refused: ", "declined": "it declined: "}


@dataclass
class Dialogue:
    """How it stands with one client."""

    client: int
    online: bool = False
    asked: int = 0
    asked_at: float = 0.0
    waiting: set[str] = field(default_factory=set)  # requests without an answer
    again: str | None = None  # why it is to be asked again
    not_before: float = 0.0  # when it may be asked again
    failures: int = 0
    closed: bool = False  # it is asked no more
    why: str | None = _NEVER_ONLINE  # there is nothing of it; None for a client that has delivered


class Collection:
    """Asks clients one question, and hands what comes back to `take`."""

    def __init__(
        self,
        question: Question,
        clients: Iterable[int],
        take: Callable[[int, Packet], Outcome],
        transport: Transport,
        ledger: Ledger,
        plan: Plan,
        clock: Clock,
    ) -> None:
        self._question, self._take = question, take
        self._transport, self._ledger, self._plan, self._clock = transport, ledger, plan, clock
        self._dialogues = {number: Dialogue(number) for number in clients}
        self._owners: dict[str, int] = {}  # who was asked, by request
        self._down_since: float | None = None

    @property
    def missing(self) -> dict[int, str]:
        """The clients of which there is nothing, and why."""
        return {d.client: d.why for d in self._dialogues.values() if d.why is not None}

    def run(self, seconds: float, lives: float, late: bool = False) -> None:
        """Asks and listens until every client has given its last answer or the seconds are over.

        Args:
            lives: how many seconds from now an answer may still come: the life of a question.
            late: whether what arrives now is late.
        """
        begin = self._clock.now()
        while not self._settled and self._clock.now() - begin < seconds:
            try:
                self._look()
                for dialogue in self._dialogues.values():
                    if self._is_due(dialogue):
                        self._ask(dialogue, max(lives - (self._clock.now() - begin), 1.0))
                self._listen(late)
                self._down_since = None
            except TransportDown as error:
                self._endure(error)
            if not self._settled:
                self._clock.sleep(self._plan.poll_seconds)

    @property
    def _settled(self) -> bool:
        return all(dialogue.closed for dialogue in self._dialogues.values())

    def _endure(self, error: TransportDown) -> None:
        if self._down_since is None:
            self._down_since = self._clock.now()
            self._ledger.note("transport down", detail={"reason": str(error)})
        elif self._clock.now() - self._down_since > GIVE_UP_SECONDS:
            raise error

    def _look(self) -> None:
        """Who has come, who has gone."""
        online = self._transport.online()
        for dialogue in self._dialogues.values():
            if (dialogue.client in online) == dialogue.online:
                continue
            dialogue.online = not dialogue.online
            self._ledger.note("online" if dialogue.online else "gone", dialogue.client)
            if dialogue.online and dialogue.waiting:
                dialogue.again = "it came back"  # what it was asked before it went is lost
            elif not dialogue.online and not dialogue.closed:
                dialogue.why = "has gone before it answered"

    def _is_due(self, dialogue: Dialogue) -> bool:
        """Whether to ask now: for the first time, after an answer that was not the last, or because it is silent."""
        now = self._clock.now()
        if dialogue.closed or not dialogue.online or now < dialogue.not_before:
            return False
        if not dialogue.waiting or dialogue.again:
            return True
        if now - dialogue.asked_at <= self._plan.wait_seconds + self._plan.silence_seconds:
            return False
        self._ledger.note("silent", dialogue.client, {"since": round(now - dialogue.asked_at, 1)})
        dialogue.again, dialogue.why = "it was silent", "was online and did not answer"
        return True

    def _ask(self, dialogue: Dialogue, lives: float) -> None:
        request = self._transport.push(dialogue.client, self._question, lives)
        if request is None:
            self._ledger.note("lost", dialogue.client, {"reason": _NOT_TAKEN})
            self._failed(dialogue, _NOT_TAKEN)
            return
        self._owners[request] = dialogue.client
        self._ledger.note("asked", dialogue.client, {"again": dialogue.again} if dialogue.again else {})
        dialogue.waiting.add(request)
        dialogue.asked, dialogue.asked_at, dialogue.again = dialogue.asked + 1, self._clock.now(), None
        if dialogue.why == _NEVER_ONLINE:
            dialogue.why = "has not answered before the deadline"

    def _listen(self, late: bool) -> None:
        for arrived in self._transport.pull():
            asked = self._owners.get(arrived.request)
            if asked is None:
                continue  # a question of somebody else's
            dialogue = self._dialogues[asked]
            dialogue.waiting.discard(arrived.request)
            if isinstance(arrived, Failure):
                self._ledger.note("lost", asked, {"reason": arrived.reason})
                self._failed(dialogue, arrived.reason)
            elif arrived.client != asked:
                who = "an unknown key" if arrived.client is None else f"the key of client {arrived.client}"
                self._ledger.note("refused", asked, {"reason": f"its answer came with {who}"})
                self._failed(dialogue, f"its answer came with {who}")
            else:
                self._sort(dialogue, self._take(asked, arrived.packet), late)

    def _sort(self, dialogue: Dialogue, outcome: Outcome, late: bool) -> None:
        kind = "late" if late and outcome.kind == "delivered" else outcome.kind
        self._ledger.note(kind, dialogue.client, outcome.told())
        if dialogue.why is None:
            return  # it has delivered: nothing that it says afterwards changes that
        if outcome.kind in FINAL:
            dialogue.closed = True
            prefix = _REFUSALS.get(outcome.kind)
            dialogue.why = f"{prefix}{outcome.reason}" if prefix else None
        elif outcome.kind == "busy":
            dialogue.again = BUSY
            dialogue.why = f"was still training at the deadline, {outcome.epoch or 0} epochs done"
        elif outcome.kind == "disk full":
            dialogue.again, dialogue.why = "it could not be kept", "its upload could not be kept: the disk was full"
            dialogue.not_before = self._clock.now() + self._plan.retry_seconds
        else:
            self._failed(dialogue, outcome.reason or "")

    def _failed(self, dialogue: Dialogue, reason: str) -> None:
        """Something broke: the client is asked again after a while, but not for ever."""
        if dialogue.why is None:
            return
        dialogue.failures += 1
        dialogue.again = "it failed"
        dialogue.why = f"failed {dialogue.failures} times, last: {reason}"
        dialogue.not_before = self._clock.now() + self._plan.retry_seconds
        dialogue.closed |= dialogue.failures > self._plan.retries
