"""What travels: a question of the server, and a client's answer. Small things are JSON, an upload is bytes."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedshot.errors import UploadRefused
from fedshot.spec import first_problem
from fedshot.store import ClientSummary

MOST_REASON = 500  # characters
MOST_JSON = 2**25  # bytes of an answer beside its upload
_MOST = 2**53  # of any number: beyond it a float has gaps

AnswerKind = Literal["counts", "upload", "skipped", "busy", "refused", "failed"]
Count = Annotated[int, Field(ge=0, le=10**9)]
Key = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")]
Number = Annotated[float, Field(allow_inf_nan=False)] | Annotated[int, Field(ge=-_MOST, le=_MOST)] | None


@dataclass(frozen=True)
class Question:
    """What the server asks a client: an order, the tensors that go with it, and how long it waits for an answer.

    A client that needs longer answers that it is busy, and is asked again.
    """

    order: bytes
    sha256: str
    job: bytes | None = None
    wait_seconds: float = 0.0


class Answer(BaseModel):
    """What a client says beside its upload.

    `counts`: of each class, in answer to an announcement. `upload`: the upload comes with it. `skipped`: it has ended
    without one, for the reason given. `busy`: it still trains. `refused`: it will not, for the reason given. `failed`:
    something broke; asked again, it tries again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    job: str = Field(max_length=64)
    client: Count
    kind: AnswerKind
    reason: str | None = Field(None, max_length=MOST_REASON)
    counts: tuple[Count, ...] | None = None
    summary: ClientSummary | None = None
    telemetry: tuple[dict[Key, Number], ...] = ()
    epoch: Count | None = None  # that it has finished, while it is busy

    @field_validator("reason")
    @classmethod
    def _one_printable_line(cls, given: str | None) -> str | None:
        return None if given is None else printable(given)

    @field_validator("summary")
    @classmethod
    def _a_possible_summary(cls, given: ClientSummary | None) -> ClientSummary | None:
        if given is None:
            return None
        numbers = [given.samples, given.validation_samples, given.seconds, given.peak_memory_bytes]
        if given.spent is not None:
            told = given.spent.model_dump().values()
            numbers += [value for value in told if isinstance(value, int | float)]
            if any(len(value) > 32 or not value.isprintable() for value in told if isinstance(value, str)):
                raise ValueError("what it says about privacy is no guarantee of ours")
        if not all(0 <= number <= _MOST for number in numbers):  # false for what is no number as well
            raise ValueError("a number in it is negative, or no possible number")
        texts = {name: printable(text) for name in ("skipped", "not_captured") if (text := getattr(given, name))}
        return given.model_copy(update=texts)


@dataclass(frozen=True)
class Packet:
    """An answer as it travels: its JSON, and the bytes of an upload."""

    answer: bytes
    upload: bytes | None = None


def pack(answer: Answer, upload: bytes | None = None) -> Packet:
    """An answer ready to travel."""
    return Packet(answer.model_dump_json(exclude_none=True).encode(), upload)


def unpack(packet: Packet) -> Answer:
    """The answer in a packet; refuses what is none. Nothing in it is believed yet."""
    if len(packet.answer) > MOST_JSON:
        raise UploadRefused(f"an answer of {len(packet.answer):,} bytes beside its upload: at most {MOST_JSON:,}")
    try:
        return Answer.model_validate_json(packet.answer)
    except ValidationError as error:
        raise UploadRefused(printable(f"not an answer of ours: {first_problem(error)}")) from None


def printable(text: str) -> str:
    """One line of a bounded length, without control characters: what a stranger says is shown in terminals and pages.

    >>> printable("no\\x1b[31m\\nroom")
    'no [31m room'
    """
    return re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in text)).strip()[:MOST_REASON]
