"""The conditions of `--where`, and the parts of `--pivot`."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fedshot.changed import words_of
from fedshot.errors import UserError, did_you_mean
from fedshot.options import parse_pairs
from fedshot.study.grid import SETTINGS

_MOST_VALUES = 8  # that are told of a column
_HAS_OPTIONS = re.compile(r"\s*(variant|fusion|final\.fusion)\s*!?==?[^|]*(\|[^|]*)*:[^|:=]+=[^|]*")
_CONDITION = re.compile(r"\s*([\w.]+)\s*(<=|>=|!=|==?|<|>)\s*(.+?)\s*")


@dataclass(frozen=True)
class Condition:
    """A column, a comparison, and the values that it is compared with: any of them for =, none of them for !=.

    The end of a path is enough.
    """

    column: str
    operator: str
    wanted: tuple[str, ...]

    @property
    def text(self) -> str:
        """As it may be typed."""
        return f"{self.column}{self.operator}{'|'.join(self.wanted)}"

    def holds(self, value: Any) -> bool:
        """Whether a value satisfies it. Numbers are compared as numbers; a value that is not there equals `none`.

        >>> Condition("alpha", "<=", ("0.1",)).holds(0.05), Condition("data", "=", ("digits", "svhn")).holds("cifar10")
        (True, False)
        >>> Condition("variant", "=", ("mine.py:power=2",)).holds("variants/mine.py:power=2")
        True
        """
        if self.operator in ("=", "!="):
            return any(_equal(value, text) for text in self.wanted) == (self.operator == "=")
        if not isinstance(value, int | float):
            return False
        limit = _number(self.wanted[0])
        if limit is None or len(self.wanted) > 1:
            raise UserError(f"--where {self.text}: compare with one number")
        return {"<": value < limit, "<=": value <= limit, ">": value > limit, ">=": value >= limit}[self.operator]


def parse_where(query: str) -> list[Condition]:
    """Conditions as typed, all of which must hold; a bar separates values of which one is enough.

    >>> parse_where("method=fafi|etf, alpha<=0.1, seed==2")
    [Condition(column='method', operator='=', wanted=('fafi', 'etf')),
     Condition(column='alpha', operator='<=', wanted=('0.1',)),
     Condition(column='seed', operator='=', wanted=('2',))]

    An option belongs to the method or the rule before it:

    >>> [found.wanted for found in parse_where("variant=etf:weight=2,anneal=cosine|fafi,alpha=0.1")]
    [('etf:weight=2,anneal=cosine', 'fafi'), ('0.1',)]
    """
    found = []
    for text in _parts(query):
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise UserError(f"--where {text!r}: write COLUMN=VALUE, or != < <= > >=, as in method=fafi|etf,alpha<=0.1")
        column, operator, values = match.groups()
        found.append(
            Condition(column, operator.replace("==", "="), tuple(value.strip() for value in values.split("|")))
        )
    return found


def _parts(query: str) -> list[str]:
    """The conditions as texts: a comma separates two, unless what follows is a further option of a method or a rule."""
    found: list[str] = []
    for part in filter(None, (part.strip() for part in query.split(","))):
        match = _CONDITION.fullmatch(part)
        is_option = match is not None and match[2] == "=" and match[1].rpartition(".")[2] not in _columns()
        if found and is_option and _HAS_OPTIONS.fullmatch(found[-1]):
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


@lru_cache(maxsize=1)
def _columns() -> frozenset[str]:
    """The ends of the names of columns that are no option's."""
    from fedshot.record import Cost, Final

    of_run = ("run", "variant", "method", "content", "seed", "device", "result_sha256", *SETTINGS)
    of_clients = ("skipped", "smallest", "largest", "accuracy_alone", "best_alone", "overlap", "fingerprint")
    return frozenset((*of_run, *of_clients, *Final.model_fields, *Cost.model_fields))


def known_values(condition: Condition, values: Sequence[Any]) -> str:
    """What a column has in place of what was asked for, and which of it was perhaps meant.

    >>> known_values(Condition("data", "=", ("digts",)), ["digits", "svhn", "digits"])
    "did you mean 'digits'? data is digits or svhn"
    >>> known_values(Condition("final.accuracy", ">", ("90",)), [0.5, 0.75])
    'final.accuracy is 0.5 or 0.75, a share of 1'
    """
    from fedshot.study.pivot import SHARES

    found = list({repr(value): value for value in values}.values())
    numbers = sorted(value for value in found if isinstance(value, int | float) and not math.isnan(value))
    texts = [words_of(n) for n in numbers] + [words_of(v) for v in found if v not in numbers]
    hint = "" if numbers else did_you_mean(condition.wanted[0], texts).removeprefix(": ")
    if len(texts) <= _MOST_VALUES:
        told = f"is {' or '.join(filter(None, [', '.join(texts[:-1]), texts[-1]]))}"
    elif numbers:
        told = f"lies between {words_of(numbers[0])} and {words_of(numbers[-1])}"
    else:
        told = f"is {', '.join(texts[:_MOST_VALUES])} or one of {len(texts) - _MOST_VALUES} more"
    share = ", a share of 1" if condition.column in SHARES else ""
    return " ".join(filter(None, [hint, condition.column, told])) + share


def parse_pivot(text: str) -> tuple[list[str], list[str], str]:
    """Rows, columns and the value of a pivot as typed; several names are joined by a plus.

    >>> parse_pivot("rows=method+clients,columns=alpha")
    (['method', 'clients'], ['alpha'], 'final.accuracy')
    """
    given = parse_pairs(text.split(","), "--pivot")
    if wrong := given.keys() - {"rows", "columns", "value"}:
        raise UserError(f"--pivot: {min(wrong)!r} is not possible: write rows=NAME+NAME,columns=NAME,value=NAME")
    return (
        names(given.get("rows", "variant"), "+"),
        names(given.get("columns", ""), "+"),
        given.get("value", "final.accuracy"),
    )


def names(text: str, separator: str = ",") -> list[str]:
    """Names as typed."""
    return [name.strip() for name in text.split(separator) if name.strip()]


def _equal(value: Any, text: str) -> bool:
    if value is None or isinstance(value, bool):
        return str(value).lower() == text.lower()
    number = _number(text)
    if isinstance(value, int | float) and number is not None:
        return value == number
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "+".join(map(str, value)) == text
    return str(value) == text or str(value).endswith(f"/{text}")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
