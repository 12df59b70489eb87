"""Errors that speak to the user: what was given, what is allowed, what to type instead."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """A mistake in what was asked. The command line prints it in one line and exits with status 2."""


class UploadRefused(ValueError):
    """An upload that is not what it says; the server goes on with the others."""


def unknown(what: str, given: str, allowed: Iterable[str]) -> UserError:
    """The error for a name that is not in a list.

    >>> str(unknown("method", "faffi", ["fafi", "etf"]))
    "unknown method 'faffi': did you mean 'fafi'? Allowed: etf, fafi"
    """
    names = sorted(allowed)
    near = get_close_matches(given.lower(), {name.lower(): name for name in names}, n=1, cutoff=0.5)
    spelled = next((name for name in names if near and name.lower() == near[0]), None)
    hint = f": did you mean {spelled!r}?" if spelled else "."
    return UserError(f"unknown {what} {given!r}{hint} Allowed: {', '.join(names)}")
