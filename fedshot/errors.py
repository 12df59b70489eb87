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
    return UserError(f"unknown {what} {given!r}{did_you_mean(given, names) or '.'} Allowed: {', '.join(names)}")


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """A hint at the nearest of the allowed names; empty if none is near.

    >>> did_you_mean("cosin", ["linear", "cosine"]), did_you_mean("etf", ["fafi"])
    (": did you mean 'cosine'?", '')
    """
    names = {name.lower(): name for name in allowed}
    near = get_close_matches(given.lower(), names, n=1, cutoff=0.6)
    return f": did you mean {names[near[0]]!r}?" if near else ""
