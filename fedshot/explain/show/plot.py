"""A small plot of one series: a line of SVG, in the colour of the text around it."""

import math
from html import escape

from fedshot.explain.finding import Series

_WIDTH, _HEIGHT, _EDGE = 260, 70, 4


def plot(series: Series) -> str:
    """An <svg> element that stands alone.

    >>> plot(Series("λ", (1, 2), (1.0, 3.0))).count("<polyline")
    1
    """
    by_log = series.log and min(series.values) > 0
    values = [math.log(value) for value in series.values] if by_log else list(series.values)
    low, span = min(values), max(values) - min(values) or 1.0
    first, reach = series.epochs[0], series.epochs[-1] - series.epochs[0] or 1
    points = " ".join(
        f"{_EDGE + (epoch - first) / reach * (_WIDTH - 2 * _EDGE):.1f},"
        f"{_HEIGHT - _EDGE - (value - low) / span * (_HEIGHT - 2 * _EDGE):.1f}"
        for epoch, value in zip(series.epochs, values, strict=True)
    )
    said = (
        f"{series.label}: {min(series.values):.3g} to {max(series.values):.3g}, epochs {first} to {series.epochs[-1]}"
    )
    said += ", logarithmic" if by_log else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(said, quote=True)}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"><polyline fill="none" stroke="#2b7bba" stroke-width="2" '
        f'points="{points}"/><line x1="{_EDGE}" x2="{_WIDTH - _EDGE}" y1="{_HEIGHT - 1}" y2="{_HEIGHT - 1}" '
        'stroke="#7d8790" stroke-width="0.6"/></svg>'
    )
