"""The names of folders for what was typed: runs that no place was given for, methods and rules side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedshot.user_file import file_of

if TYPE_CHECKING:
    from fedshot.spec import Spec


def folder_name(spec: "Spec") -> str:
    """Of a run that no --out was given for: it holds the complete spec's hash."""
    return f"{_safe(Path(spec.method).name)}-{_safe(Path(spec.data).name)}-seed{spec.seed}-{spec.sha256[:8]}"


def folder_names(references: Sequence[str]) -> dict[str, str]:
    """A folder for each method or rule as typed: a file by its name, or by its path where two names are alike.

    >>> folder_names(["etf:weight=2", "a/mine.py:power=2"])
    {'etf:weight=2': 'etf-weight-2', 'a/mine.py:power=2': 'mine.py-power-2'}
    >>> folder_names(["a/mine.py", "b/mine.py"])
    {'a/mine.py': 'a-mine.py', 'b/mine.py': 'b-mine.py'}
    """
    files = {text: file_of(text) or "" for text in references}
    short = {text: _safe(text.replace(file, Path(file).name, 1)) for text, file in files.items()}
    alike = {name for name in short.values() if list(short.values()).count(name) > 1}
    return {text: _safe(text) if name in alike else name for text, name in short.items()}


def _safe(text: str) -> str:
    """A file name from what was typed."""
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in text).strip("-.") or "run"
