"""The standing of a method as SVG, the same bytes wherever it is drawn: a line a cell, a dot for each figure."""

from collections.abc import Sequence
from html import escape

from fedshot.report.standing import Contender, Standing
from fedshot.report.style import COLOURS, INK

_WIDE, _ROW, _TOP = 470, 17, 44  # pixels: from 0 to 100 %, from line to line, above the first
_LETTER = 6.4  # pixels, of the widest usual letter
_LONGEST = 64  # letters of a label


def standing_picture(found: Sequence[Standing], method: str) -> str:
    """FAFI, the best rival, the best part and the method itself, in each cell."""
    labels = [_label(each) for each in found]
    left = round(_LETTER * max(map(len, labels))) + 24
    right, height = left + _WIDE + 28, _TOP + _ROW * len(found) + 8
    shown = [(COLOURS[1], "best rival"), (COLOURS[0], method)]
    if any(each.part for each in found):
        shown.insert(1, (COLOURS[2], "its part"))
    if any(each.plain for each in found):
        shown.insert(0, (INK, "fafi"))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right} {height}" width="{right}" height="{height}" '
        f'font-family="DejaVu Sans, sans-serif" font-size="11" fill="{INK}" role="img">',
        f"<title>Accuracy of {escape(method)} and of the best of all others, cell by cell</title>",
    ]
    x = left
    for colour, name in shown:
        lines.append(f'<circle cx="{x}" cy="10" r="4.5" fill="{colour}"/>')
        lines.append(f'<text x="{x + 9}" y="14">{escape(name)}</text>')
        x += round(_LETTER * len(name)) + 36
    for share in range(0, 101, 20):
        at = _across(share / 100, left)
        lines.append(f'<text x="{at}" y="{_TOP - 10}" text-anchor="middle">{share} %</text>')
        lines.append(f'<path d="M{at} {_TOP - 5}V{height - 6}" stroke="{INK}" stroke-opacity=".22"/>')
    for number, (each, label) in enumerate(zip(found, labels, strict=True)):
        lines += _line(each, label, left, _TOP + _ROW * number + 6)
    return "\n".join([*lines, "</svg>", ""])


def _label(each: Standing) -> str:
    data, clients, division, epochs, encoder = each.place
    text = f"{data} · K={clients} · {division} · {encoder} · {epochs} epochs"
    return text if len(text) <= _LONGEST else f"…{text[1 - _LONGEST :]}"


def _line(each: Standing, label: str, left: int, y: int) -> list[str]:
    """The line of a cell at a height of the picture."""
    dots: list[tuple[Contender | None, str]] = [(each.plain, INK), (each.rival, COLOURS[1]), (each.part, COLOURS[2])]
    at = [(_across(contender.reached.mean, left), colour) for contender, colour in dots if contender]
    at.append((_across(each.own.mean, left), COLOURS[0]))
    ends = [x for x, _ in at]
    return [
        f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{escape(label)}</text>',
        f'<path d="M{min(ends)} {y}H{max(ends)}" stroke="{INK}" stroke-opacity=".5"/>',
        *(f'<circle cx="{x}" cy="{y}" r="4.5" fill="{colour}"/>' for x, colour in at),
    ]


def _across(share: float, left: int) -> float:
    """Where a share lies in the picture, in pixels from its edge."""
    return round(left + share * _WIDE, 1)
