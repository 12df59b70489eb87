"""What long work at the server says of how far it is, to whoever listens."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str], None]

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


def tell(text: str) -> None:
    """Says where the work stands; nobody need listen."""
    if (listener := _LISTENER.get()) is not None:
        listener(text)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Whatever is told meanwhile goes to the listener.

    >>> with heard_by(print):
    ...     tell("half of it is done")
    half of it is done
    """
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)
