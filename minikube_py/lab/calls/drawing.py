"""Sequence diagrams as SVG: lanes, time-ordered arrows between them, notes. Needs no libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from textwrap import wrap
from typing import Final, Literal

GUTTER, MARGIN, TITLE_HEIGHT, HEAD_HEIGHT, ROW_HEIGHT = 92, 24, 58, 34, 30
GAP_MIN, GAP_MAX = 118, 430
SUBTITLE_WIDTH_MIN, LINE_HEIGHT = 760, 16
FONT = "font-family=\"ui-sans-serif, 'Segoe UI', Helvetica, Arial, sans-serif\""
ARROW_CHARACTERS: Final = 34
"""A longer text over an arrow takes two lines."""
CHARACTER_WIDTH: Final = 6.7
"""Average width at font size 12."""
INK, FAINT, PAPER = "#1a202c", "#718096", "#ffffff"
KIND_COLOURS: Final[Mapping[str, str]] = {
    "request": "#2b6cb0",
    "reply": "#4a5568",
    "event": "#2f855a",
    "own": "#6b46c1",
    "refused": "#c53030",
}


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow between lanes; within one lane, an action of that lane. `at_s`: None shows no time."""

    source: str
    target: str
    text: str
    kind: Literal["request", "reply", "event", "own", "refused"]
    at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Text across all lanes."""

    text: str


@dataclass(frozen=True, slots=True)
class Diagram:
    title: str
    subtitle: str
    lanes: tuple[str, ...]
    rows: Sequence[Arrow | Note] = field(default_factory=tuple)


def time_text(seconds: float) -> str:
    """`12 µs`, `1.42 ms`, `3.05 s` since the start."""
    if seconds < 0.0001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1000:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def svg(diagram: Diagram) -> str:
    places = _places(diagram)
    right = places[diagram.lanes[-1]] + _overhang(diagram)
    width = max(right, GUTTER + len(diagram.title) * 9 + MARGIN, SUBTITLE_WIDTH_MIN)
    top = TITLE_HEIGHT + HEAD_HEIGHT
    height = top + ROW_HEIGHT * (len(diagram.rows) + 1) + MARGIN
    subtitle = wrap(diagram.subtitle, int((width - 2 * MARGIN) / CHARACTER_WIDTH)) or [""]
    lower = LINE_HEIGHT * (len(subtitle) - 1)
    begun_s = next((row.at_s for row in diagram.rows if isinstance(row, Arrow) and row.at_s is not None), 0.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height + lower}" '
        f'viewBox="0 0 {width:.0f} {height + lower}" {FONT} font-size="12" role="img">',
        f"<title>{escape(diagram.title)}</title>",
        _heads(),
        f'<rect width="100%" height="100%" fill="{PAPER}"/>',
        f'<text x="{MARGIN}" y="24" font-size="17" font-weight="600" fill="{INK}">{escape(diagram.title)}</text>',
        *(
            f'<text x="{MARGIN}" y="{44 + LINE_HEIGHT * line}" fill="{FAINT}">{escape(text)}</text>'
            for line, text in enumerate(subtitle)
        ),
        f'<g transform="translate(0 {lower})">',
        *(_lane(name, places[name], height - MARGIN) for name in diagram.lanes),
    ]
    for number, row in enumerate(diagram.rows, start=1):
        y = top + ROW_HEIGHT * number
        parts.append(_note(row, y, width) if isinstance(row, Note) else _arrow(row, y, places, begun_s))
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _text_width(text: str) -> float:
    return len(text) * CHARACTER_WIDTH


def _lines(text: str) -> list[str]:
    """What is written over an arrow between lanes: two lines at most, as rows are that far apart."""
    first, *rest = wrap(text, ARROW_CHARACTERS) or [text]
    return [first, " ".join(rest)] if rest else [first]


def _places(diagram: Diagram) -> dict[str, float]:
    """The x of each lane: neighbours as far apart as the longest text between them requires."""
    lanes = diagram.lanes
    gaps = [max(GAP_MIN, (_text_width(a) + _text_width(b)) / 2 + 36) for a, b in pairwise(lanes)]
    for row in diagram.rows:
        if not isinstance(row, Arrow):
            continue
        low, high = sorted((lanes.index(row.source), lanes.index(row.target)))
        widest = row.text if low == high else max(_lines(row.text), key=len)
        needed = min(_text_width(widest) + (44 if low == high else 30), GAP_MAX)
        if low == high:
            high += 1
        if high < len(lanes) and (short := needed - sum(gaps[low:high])) > 0:
            gaps[low:high] = [gap + short / (high - low) for gap in gaps[low:high]]
    places = [float(GUTTER + max(50, _text_width(lanes[0]) / 2 + 16))]
    for gap in gaps:
        places.append(places[-1] + gap)
    return dict(zip(lanes, places))


def _overhang(diagram: Diagram) -> float:
    """The width needed to the right of the last lane."""
    last = diagram.lanes[-1]
    own = [
        _text_width(row.text) + 34
        for row in diagram.rows
        if isinstance(row, Arrow) and row.source == row.target == last
    ]
    return max([60.0, _text_width(last) / 2 + 16, *own]) + MARGIN


def _heads() -> str:
    markers = [
        f'<marker id="{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,0.8 L10,5 L0,9.2 z" fill="{colour}"/></marker>'
        for kind, colour in KIND_COLOURS.items()
    ]
    return f"<defs>{''.join(markers)}</defs>"


def _lane(name: str, x: float, bottom: float) -> str:
    width = _text_width(name) + 26
    return (
        f'<line x1="{x:.1f}" y1="{TITLE_HEIGHT + HEAD_HEIGHT}" x2="{x:.1f}" y2="{bottom}" stroke="#cbd5e0"/>'
        f'<rect x="{x - width / 2:.1f}" y="{TITLE_HEIGHT}" width="{width:.1f}" height="{HEAD_HEIGHT - 6}" rx="5" '
        f'fill="#edf2f7" stroke="#a0aec0"/><text x="{x:.1f}" y="{TITLE_HEIGHT + 19}" text-anchor="middle" '
        f'font-weight="600" fill="{INK}">{escape(name)}</text>'
    )


def _note(note: Note, y: float, width: float) -> str:
    return (
        f'<rect x="{MARGIN}" y="{y - 19}" width="{width - 2 * MARGIN:.1f}" height="22" rx="3" fill="#fefcbf" '
        f'stroke="#ecc94b"/><text x="{MARGIN + 10}" y="{y - 4}" fill="{INK}">{escape(note.text)}</text>'
    )


def _arrow(row: Arrow, y: float, places: Mapping[str, float], begun_s: float) -> str:
    colour = KIND_COLOURS[row.kind]
    parts = []
    if row.at_s is not None:
        at = time_text(max(0.0, row.at_s - begun_s))
        parts.append(f'<text x="{GUTTER - 14}" y="{y + 4}" text-anchor="end" fill="{FAINT}">{at}</text>')
    from_x, to_x = places[row.source], places[row.target]
    dash = ' stroke-dasharray="5 3"' if row.kind in ("reply", "event") else ""
    if from_x == to_x:
        path = f"M{from_x:.1f},{y - 8} h14 q5,0 5,5 v2 q0,5 -5,5 h-11"
        parts.append(f'<path d="{path}" fill="none" stroke="{colour}" marker-end="url(#{row.kind})"/>')
        parts.append(_over(row.text, f'x="{from_x + 26:.1f}" y="{y + 2}"', colour))
        return "".join(parts)
    gap = 3 if to_x > from_x else -3
    parts.append(
        f'<line x1="{from_x:.1f}" y1="{y}" x2="{to_x - gap:.1f}" y2="{y}" stroke="{colour}" stroke-width="1.4"{dash} '
        f'marker-end="url(#{row.kind})"/>'
    )
    middle = (from_x + to_x) / 2
    for number, text in enumerate(reversed(_lines(row.text))):
        parts.append(_over(text, f'x="{middle:.1f}" y="{y - 5 - 12 * number}" text-anchor="middle"', colour))
    return "".join(parts)


def _over(text: str, place: str, colour: str) -> str:
    """Text with a rim in the background colour, clear of lines. Drawn twice: not all renderers support paint-order."""
    words = escape(text)
    rim = f'fill="{PAPER}" stroke="{PAPER}" stroke-width="4" stroke-linejoin="round"'
    return f'<text {place} {rim}>{words}</text><text {place} fill="{colour}">{words}</text>'
