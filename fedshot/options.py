"""Options of a method or a fusion rule, read off the signature of the function that makes it.

A parameter is an option; a parameter whose default is a frozen dataclass offers the fields of that dataclass as
`parameter.field`. The last part of a dotted key is enough where it is unambiguous.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedshot.errors import UserError, unknown

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """One thing that can be set."""

    key: str
    type: Any
    default: Any

    @property
    def allowed(self) -> str:
        """The type in the user's words.

        >>> Option("weight", float | None, None).allowed
        'float or none'
        """
        if typing.get_origin(self.type) is typing.Literal:
            return " | ".join(str(value) for value in typing.get_args(self.type))
        parts = typing.get_args(self.type) or (self.type,)
        return " or ".join("none" if part is type(None) else part.__name__ for part in parts)


def options_of(factory: Callable[..., object]) -> dict[str, Option]:
    """Every option by its full key, in the order of the signature."""
    hints = typing.get_type_hints(factory)
    found: dict[str, Option] = {}
    for name, parameter in inspect.signature(factory).parameters.items():
        default = parameter.default
        if is_dataclass(default) and not isinstance(default, type):
            inner = typing.get_type_hints(type(default))
            for field in fields(default):
                key = f"{name}.{field.name}"
                found[key] = Option(key, inner[field.name], getattr(default, field.name))
        else:
            found[name] = Option(name, hints[name], default)
    return found


def resolve(factory: Callable[..., object], given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """All options of the factory with the given ones checked and put in. `what` names the factory in errors."""
    options = options_of(factory)
    values = {key: option.default for key, option in options.items()}
    for key, value in given.items():
        option = options[_full_key(key, options, what)]
        try:
            plain = None if isinstance(value, str) and value.lower() in ("none", "null") else value
            values[option.key] = TypeAdapter(option.type).validate_python(plain)
        except ValidationError:
            raise UserError(f"{what}: {option.key} takes {option.allowed}, not {value!r}") from None
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
    given: dict[str, str] = {}
    for setting in filter(None, text.split(",")):
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UserError(f"{what}: write an option as key=value, not {setting!r}")
        given[key.strip()] = value.strip()
    return given


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
