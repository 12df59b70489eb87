"""Numbers as people read them: bytes, seconds, a curve in one line of text."""

from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"


def bytes_in_words(count: float) -> str:
    """Three significant digits in decimal units.

    >>> [bytes_in_words(n) for n in (0, 512, 678_912, 3_394_560, 999_700)]
    ['0 B', '512 B', '679 kB', '3.39 MB', '1.00 MB']
    """
    if round(count) < 1000:
        return f"{round(count)} B"
    unit = "kB" if count < 999.5e3 else "MB" if count < 999.5e6 else "GB"
    count /= {"kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]
    digits = 2 if count < 9.995 else 1 if count < 99.95 else 0
    return f"{count:.{digits}f} {unit}"


def seconds_in_words(seconds: float) -> str:
    """Short enough for a column.

    >>> [seconds_in_words(s) for s in (0.043, 4.49, 61.2, 754, 9000)]
    ['0.04 s', '4.5 s', '61 s', '12.6 min', '2.5 h']
    """
    if seconds < 120:
        return f"{seconds:.{2 if seconds < 0.95 else 1 if seconds < 9.95 else 0}f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def number_of(count: int, thing: str) -> str:
    """A count and its noun.

    >>> number_of(1, "seed"), number_of(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def marks(inductive: bool, phases: int, skipped: int, clients: int) -> tuple[str, ...]:
    """What a reader has to know before comparing a result with others.

    >>> marks(inductive=False, phases=2, skipped=1, clients=5)
    ('transductive', '2 phases', '1 of 5 clients skipped')
    """
    said = {
        "transductive": not inductive,
        f"{phases} phases": phases > 1,
        f"{skipped} of {number_of(clients, 'client')} skipped": skipped > 0,
    }
    return tuple(mark for mark, holds in said.items() if holds)


def sparkline(values: Sequence[float]) -> str:
    """A curve of blocks from its lowest to its highest value; a flat curve stays low.

    >>> sparkline([0.1, 0.4, 0.8, 0.7])
    '▁▄█▇'
    """
    low, span = min(values), max(values) - min(values)
    return "".join(_BLOCKS[round((value - low) / span * (len(_BLOCKS) - 1)) if span else 0] for value in values)
