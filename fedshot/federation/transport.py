"""What the server needs of whatever carries its messages, and of the clock."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from fedshot.federation.messages import Packet, Question


class TransportDown(ConnectionError):
    """Messages cannot be sent or fetched at the moment."""


@dataclass(frozen=True)
class Reply:
    """An answer, and whose it is: the number that belongs to the key of the node, whatever the answer says."""

    request: str
    client: int | None  # None for a node that is in no registry
    packet: Packet


@dataclass(frozen=True)
class Failure:
    """A request that will never be answered: its node has gone, or its time has run out."""

    request: str
    reason: str


class Transport(Protocol):
    """Carries questions to clients and answers back. Every method may raise TransportDown."""

    def online(self) -> frozenset[int]:
        """The clients that can be reached now."""

    def push(self, client: int, question: Question, seconds: float) -> str | None:
        """Sends a question that lives so many seconds; the name of the request, or None if it was not taken."""

    def pull(self) -> Iterable[Reply | Failure]:
        """What has arrived since the last call, for all requests so far; one after the other, as they may be large."""


class Clock(Protocol):
    """Time, as a server that waits sees it."""

    def now(self) -> float:
        """Seconds since some moment; they never go back."""

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
