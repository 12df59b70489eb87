"""How much the server holds in memory, however many clients there are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

T = TypeVar("T")

KEPT_BYTES = {"cpu": 2**29, "cuda": 2**32}  # of models that stay loaded, by kind of device
ASKED_BYTES = {"cpu": 2**28, "cuda": 2**30}  # of prepared images and of what the models say about them


class Budget:
    """Bytes that may stay in memory. What does not fit is made again whenever it is asked for."""

    def __init__(self, size: int) -> None:
        self._left = size

    def keep(self, thing: T, size: int, make: Callable[[], T]) -> Callable[[], T]:
        """A function that gives the thing: the one at hand if its size fits, else one made anew at each call."""
        if size > self._left:
            return make
        self._left -= size
        return lambda: thing


@dataclass(frozen=True)
class OnDemand(Sequence[T]):
    """Things that are made when they are asked for. Equal if the same functions make them.

    >>> words = OnDemand((lambda: "one", lambda: "two"))
    >>> words[1], len(words), list(words)
    ('two', 2, ['one', 'two'])
    """

    makers: tuple[Callable[[], T], ...]

    def __len__(self) -> int:
        return len(self.makers)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> "OnDemand[T]": ...
    def __getitem__(self, index: int | slice) -> "T | OnDemand[T]":
        return OnDemand(self.makers[index]) if isinstance(index, slice) else self.makers[index]()
