"""The look of all figures: transparent, mid-tone ink, colours that colour-blind readers tell apart, plain SVG text."""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#7d8790"  # read on white and on black; a page replaces it by the colour of its own text
# after Okabe and Ito 2008, evened out so that each stands out from white as well as from near-black
COLOURS = ("#2b7bba", "#d17a24", "#1f9e89", "#c2569b", "#8a79d6", "#9c8b24", "#3a99c9", "#d1495b")
MARKERS = "osD^vPX*"  # a second way to tell lines apart
RAMP = ("#cfe2ec", "#97c5d6", "#4a9dba", "#1f6690", "#10345c")  # pale to deep blue, evenly darker
LONGEST_LABEL = 26


@contextmanager
def styled() -> Iterator[None]:
    """Figures made in this context look alike; nothing outside of it changes."""
    import matplotlib

    settings: dict[Any, Any] = {
        "font.size": 9.0,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "text.color": INK,
        "text.parse_math": False,  # a label may hold a dollar sign
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "axes.titlesize": 9.0,
        "axes.titlelocation": "left",
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": INK,
        "grid.alpha": 0.22,
        "grid.linewidth": 0.6,
        "xtick.color": INK,
        "ytick.color": INK,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "xtick.major.size": 0.0,
        "ytick.major.size": 0.0,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "svg.fonttype": "none",
    }
    with matplotlib.rc_context(settings):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, in inches, that needs no display and leaves nothing behind."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    return MARKERS[number % len(MARKERS)]


def short(label: str) -> str:
    """A label that leaves room for the figure: the end of a long one, where variants differ.

    >>> short("a/very/long/path/to/a/folder/with/variant.py")
    '…/a/folder/with/variant.py'
    """
    return label if len(label) <= LONGEST_LABEL else "…" + label[1 - LONGEST_LABEL :]


def bare(axes: "Axes") -> None:
    """No frame."""
    axes.spines[:].set_visible(False)


def as_svg(figure: "Figure", name: str, description: str) -> str:
    """An <svg> element to stand inside a page, in the colour of the page's text.

    Args:
        name: unique on the page; it keeps the identifiers of several figures apart.
        description: what a reader who cannot see the figure is told.
    """
    import matplotlib

    buffer = io.StringIO()
    empty = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with styled(), matplotlib.rc_context({"svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the reader's own fonts draw the text
        figure.savefig(buffer, format="svg", metadata=empty)
    text = buffer.getvalue()
    element = text[text.index("<svg") :].strip()
    element = re.sub(r'<g id="[^"]*"', "<g", element)
    element = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", element)
    element = element.replace("<svg ", f'<svg role="img" aria-label="{escape(description, quote=True)}" ', 1)
    return element.replace(INK, "currentColor")
