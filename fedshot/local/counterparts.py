"""Whether two values compute the same up to the content of their tensors, and which tensor stands for which."""

import dataclasses
import functools
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)

_SHARED = (types.CodeType, types.ModuleType, types.BuiltinFunctionType, type)  # without a state of their own


class _Differ(Exception):
    """The two values do not compute the same."""


Pair = tuple[Tensor, Tensor]

Met = dict[int, tuple[Any, Any]]  # by the id of ours: ours and theirs


def counterparts(ours: Any, theirs: Any, met: Met | None = None) -> list[Pair] | None:
    """Pairs of tensors such that `ours` becomes `theirs` by copying each second into its first; None if it cannot.

    Functions are compared by their code and by what they close over, modules, dataclasses and containers part by part,
    plain values by equality. Anything else that is not the very same object is a difference: nothing is guessed.

    Args:
        met: parts that were compared before, which are not looked into again; those of this comparison are added.

    >>> def scaled(factor, shift):
    ...     return lambda x: factor * x + shift
    >>> counterparts(scaled(torch.tensor(2.0), 1), scaled(torch.tensor(3.0), 1))
    [(tensor(2.), tensor(3.))]
    >>> counterparts(scaled(torch.tensor(2.0), 1), scaled(torch.tensor(3.0), 5)) is None
    True
    """
    try:
        return list(_pairs(ours, theirs, {} if met is None else met))
    except _Differ:
        return None


def tensors_in(value: Any) -> list[Tensor] | None:
    """Every tensor that a value holds, once, in an order that depends on its build alone; None if it hides something.

    >>> tensors_in({"a": (torch.tensor(1.0), "x"), "b": lambda: None})
    [tensor(1.)]
    """
    try:
        return list(_tensors(value, {}))
    except _Differ:
        return None


def _tensors(value: Any, met: dict[int, Any]) -> Iterator[Tensor]:
    if isinstance(value, (*_PLAIN, *_SHARED)) or id(value) in met:
        return
    met[id(value)] = value
    if isinstance(value, Tensor):
        yield value
        return
    for part in _parts(value):
        yield from _tensors(part, met)


def _pairs(ours: Any, theirs: Any, met: Met) -> Iterator[Pair]:
    if type(ours) is not type(theirs):
        raise _Differ
    if isinstance(ours, _PLAIN):
        if ours != theirs:
            raise _Differ
        return
    if id(ours) in met:  # one thing of ours in two places must be one thing of theirs
        if met[id(ours)][1] is not theirs:
            raise _Differ
        return
    met[id(ours)] = ours, theirs  # kept alive: an id must not come back as that of another value
    if ours is theirs:
        return
    if isinstance(ours, Tensor):
        kinds = [(t.shape, t.stride(), t.dtype, t.device, t.requires_grad) for t in (ours, theirs)]
        if kinds[0] != kinds[1]:
            raise _Differ
        yield ours, theirs
        return
    if isinstance(ours, dict) and list(ours) != list(theirs):
        raise _Differ
    parts = list(_parts(ours)), list(_parts(theirs))
    if len(parts[0]) != len(parts[1]):
        raise _Differ
    for part, counterpart in zip(*parts, strict=True):
        # as most parts of a module are: without a look inside
        plain = type(part) is type(counterpart) and (isinstance(part, _PLAIN) or (isinstance(part, dict) and not part))
        if not plain or part != counterpart:
            yield from _pairs(part, counterpart, met)


def _parts(value: Any) -> Iterator[Any]:
    """What a value consists of; a difference for a value that cannot be looked into."""
    if isinstance(value, tuple | list):
        yield from value
    elif isinstance(value, set | frozenset):
        yield from sorted(value, key=repr)
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, types.FunctionType):
        yield value.__code__  # the same object for two closures of one definition
        yield value.__defaults__
        yield value.__kwdefaults__
        try:
            yield from [cell.cell_contents for cell in value.__closure__ or ()]
        except ValueError:  # an empty cell
            raise _Differ from None
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, nn.Module) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        yield vars(value)
    else:
        raise _Differ
