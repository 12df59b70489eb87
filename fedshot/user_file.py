"""One function out of a Python file of the user's: a method, a fusion rule, or a study."""

import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedshot.errors import UserError, unknown


def file_of(reference: str | None) -> str | None:
    """The file in FILE.py, FILE.py:function or FILE.py:key=value; None for a name of ours.

    >>> file_of("alpha=0.1/vote.py:sharp:power=2"), file_of("distilled:teacher=vote.py")
    ('alpha=0.1/vote.py', None)
    """
    found = re.match(r"[^:]+?\.py(?=:|$)", reference or "")
    return found.group() if found else None


def split_reference(text: str) -> tuple[str, str]:
    """A method or a rule as typed, to its name, or its file with the function, and its options.

    >>> split_reference("distilled:teacher=logits:weights=uniform"), split_reference("V7")
    (('distilled', 'teacher=logits:weights=uniform'), ('V7', ''))
    >>> split_reference("vote.py:sharp:power=2"), split_reference("vote.py:power=2"), split_reference("vote.py:sharp")
    (('vote.py:sharp', 'power=2'), ('vote.py', 'power=2'), ('vote.py:sharp', ''))
    """
    if (file := file_of(text)) is None:
        name, _, settings = text.partition(":")
        return name, settings
    rest = text.removeprefix(file).removeprefix(":")
    function, _, settings = rest.partition(":")
    return (f"{file}:{function}", settings) if function and "=" not in function else (file, rest)


@contextmanager
def blamed(reference: str) -> Iterator[None]:
    """What goes wrong in a method or a rule of the user's own is told in one line, with the line of the file.

    Args:
        reference: FILE.py or FILE.py:function; anything else is not the user's, and its errors are ours.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if (file := file_of(reference)) is None or type(error).__name__ == "OutOfMemoryError":  # told by who owns it
            raise
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename).absolute() == Path(file).absolute()]
        where = f"{file}, line {lines[-1]}" if lines else file
        raise UserError(f"{where}: {type(error).__name__}: {error}") from error


def function_in(path: str, wanted: str, what: str, promise: str, fits: Callable[[Any], bool]) -> Callable[..., Any]:
    """The function of that name, or the only one that fits, among those that the file itself defines.

    Args:
        wanted: its name; empty for the only one.
        what: what it makes, in words: "method".
        promise: what such a function looks like, in words: "that returns a Method".
        fits: whether a function looks so.
    """
    if not Path(path).is_file():
        raise UserError(f"there is no file {path!r} to read a {what} from")
    name = f"fedshot_{what}_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses of the file look their module up there
    try:
        spec.loader.exec_module(module)
        own = [f for f in vars(module).values() if inspect.isfunction(f) and f.__module__ == name]
        found = {f.__name__: f for f in own if fits(f)}
    except Exception as error:
        raise UserError(f"{path} does not run: {type(error).__name__}: {error}") from error
    if wanted and wanted not in found:
        raise unknown(f"{what} in {path}", wanted, found)
    if not wanted and len(found) != 1:
        names = ", ".join(found) or "none"
        raise UserError(f"{path} must define one function {promise}, or name one as {path}:NAME; has {names}")
    return found[wanted or next(iter(found))]
