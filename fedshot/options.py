"""Options of a method or a fusion rule, read off the signature of the function that makes it.

A parameter is an option; a parameter whose default is a frozen dataclass offers the fields of that dataclass as
`parameter.field`. The last part of a dotted key is enough where it is unambiguous. A default that is no plain value
(a tensor, a module, a function) cannot be typed on a command line and is no option.
"""

import inspect
import math
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from fedshot.errors import UserError, did_you_mean, unknown

T = TypeVar("T")
NotNegative = Annotated[float, Field(ge=0)]
AboveZero = Annotated[float, Field(gt=0)]

_REQUIRED = inspect.Parameter.empty
_BOUNDS = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
_NAMES: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


@dataclass(frozen=True)
class Option:
    """One thing that can be set."""

    key: str
    type: Any
    default: Any

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED

    @property
    def allowed(self) -> str:
        """The type in the user's words.

        >>> Option("weight", float | None, None).allowed
        'a number or none'
        """
        return in_words(self.type)


def options_of(factory: Callable[..., object]) -> dict[str, Option]:
    """Every option by its full key, in the order of the signature."""
    hints = typing.get_type_hints(factory, include_extras=True)
    found: dict[str, Option] = {}
    for name, parameter in inspect.signature(factory).parameters.items():
        default = parameter.default
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if is_dataclass(default) and not isinstance(default, type):
            inner = typing.get_type_hints(type(default), include_extras=True)
            offered = {
                f"{name}.{field.name}": (inner[field.name], getattr(default, field.name)) for field in fields(default)
            }
        else:
            offered = {name: (hints.get(name, Any), default)}
        found |= {key: Option(key, kind, value) for key, (kind, value) in offered.items() if _is_plain(value)}
    return found


def resolve(factory: Callable[..., object], given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """All options of the factory with the given ones checked and put in. `what` names the factory in errors."""
    options = options_of(factory)
    values = {key: option.default for key, option in options.items()}
    for key, value in given.items():
        option = options[_full_key(key, options, what)]
        values[option.key] = _checked(option, value, what)
    if lacking := [key for key, value in values.items() if value is _REQUIRED]:
        raise UserError(f"{what}: {lacking[0]} has no default: give it as {lacking[0]}=VALUE")
    return values


def bind(factory: Callable[..., T], given: Mapping[str, Any], what: str) -> T:
    """Calls the factory with the given options.

    >>> @dataclass(frozen=True)
    ... class Hinge:
    ...     cap: float = 50.0
    >>> def method(weight: float = 1.0, hinge: Hinge = Hinge()) -> tuple[float, Hinge]:
    ...     return weight, hinge
    >>> bind(method, {"cap": "7", "weight": 2}, "method")
    (2.0, Hinge(cap=7.0))
    """
    arguments: dict[str, Any] = {}
    parameters = inspect.signature(factory).parameters
    for key, value in resolve(factory, given, what).items():
        name, _, field = key.partition(".")
        nested = arguments.get(name, parameters[name].default)
        arguments[name] = replace(nested, **{field: value}) if field else value
    return factory(**arguments)


def parse_inline(text: str, what: str) -> dict[str, str]:
    """Options written after a name as key=value,key=value.

    >>> parse_inline("weight=0,anneal=cosine", "method 'etf'")
    {'weight': '0', 'anneal': 'cosine'}
    """
    return parse_pairs(filter(None, text.split(",")), what)


def parse_pairs(texts: Iterable[str], what: str) -> dict[str, str]:
    """Settings as typed, each key=value."""
    given: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise UserError(f"{what}: write key=value, not {text!r}")
        if key in given:
            raise UserError(f"{what}: {key} is given twice")
        given[key] = value
    return given


def parse_integers(text: str, flag: str) -> list[int]:
    """Numbers as typed, 1,2,3 or 1-3.

    >>> parse_integers("1-3,7", "--seeds")
    [1, 2, 3, 7]
    """
    try:
        found: list[int] = []
        for part in text.split(","):
            first, dash, last = part.partition("-")
            numbers = range(int(first), int(last) + 1) if dash else [int(first)]
            if not numbers:
                raise ValueError(f"{part} is no range")
            found += numbers
    except ValueError:
        raise UserError(f"{flag} {text!r}: write numbers as 1,2,3 or 1-3") from None
    return list(dict.fromkeys(found))


def in_words(kind: Any) -> str:
    """A type as a user would say it.

    >>> in_words(Annotated[int, Field(ge=1)])
    'a whole number of at least 1'
    >>> in_words(AboveZero)
    'a number above 0'
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is type(None):
        return "none"
    if origin is typing.Literal:
        return " | ".join(str(value) for value in arguments)
    if origin is Annotated:
        limits = [limit for extra in arguments[1:] for limit in getattr(extra, "metadata", ())]
        said = [
            f"{word} {getattr(limit, name)}"
            for limit in limits
            for name, word in _BOUNDS.items()
            if hasattr(limit, name)
        ]
        return f"{in_words(arguments[0])} {' and '.join(said)}".strip()
    if arguments and origin is not tuple:
        return " or ".join(in_words(part) for part in arguments)
    return "anything" if kind is Any else _NAMES.get(kind, getattr(kind, "__name__", str(kind)))


def choices(kind: Any) -> tuple[str, ...]:
    """The words that a type allows, if it allows only certain words.

    >>> choices(typing.Literal["linear", "cosine"] | None)
    ('linear', 'cosine')
    """
    if typing.get_origin(kind) is typing.Literal:
        return tuple(str(value) for value in typing.get_args(kind))
    return tuple(word for part in typing.get_args(kind) for word in choices(part))


def _checked(option: Option, value: Any, what: str) -> Any:
    none_said = isinstance(value, str) and value.lower() in ("none", "null")
    plain = None if none_said and type(None) in typing.get_args(option.type) else value
    try:
        found = TypeAdapter(option.type).validate_python(plain)
        a_yes = isinstance(plain, bool) and not isinstance(found, bool)  # as YAML reads yes and no
        if not a_yes and (not isinstance(found, float) or math.isfinite(found)):
            return found
    except ValidationError:
        pass
    hint = did_you_mean(str(value), choices(option.type))
    raise UserError(f"{what}: {option.key} takes {option.allowed}, not {value!r}{hint}")


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_plain(part) for part in value)
    return value is _REQUIRED or isinstance(value, (bool, int, float, str, type(None)))


def _full_key(key: str, options: Mapping[str, Option], what: str) -> str:
    if key in options:
        return key
    ending = [full for full in options if full.endswith(f".{key}")]
    if len(ending) == 1:
        return ending[0]
    if len(ending) > 1:
        raise UserError(f"{what}: {key!r} is ambiguous: write {' or '.join(ending)}")
    if not options:
        raise UserError(f"{what} has no options, but {key!r} was set")
    raise unknown(f"option of {what}", key, options)
