"""The run as a picture: lines over time, and where something was killed or came back. SVG and text.

An SVG is text, so it needs no library, and what changed between two runs can be read in a diff.
"""

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, log10
from typing import NamedTuple

WIDTH, PANEL, GAP, LEFT, BOTTOM = 860, 190, 46, 74, 64
ROW, LETTER = 14, 6.2  # of a text: the height of a line, and the mean width
COLORS = ("#1b6ca8", "#d1495b", "#66801f")
BLOCKS = " ▁▂▃▄▅▆▇█"
KILLED, BACK, OTHER = "#c1121f", "#2a7f3f", "#777777"

Line = Sequence[tuple[float, float]]  # seconds, value


class Panel(NamedTuple):
    """Lines over the same time, with one scale."""

    title: str
    lines: Mapping[str, Line]


class Event(NamedTuple):
    """Something that happened to the pipeline."""

    at_s: float
    what: str
    color: str = OTHER


def svg(title: str, panels: Sequence[Panel], events: Sequence[Event]) -> str:
    """The panels one below the other, and the events through all of them."""
    end_s = max((line[-1][0] for panel in panels for line in panel.lines.values() if line), default=1.0)
    labels = _placed(events, end_s)
    top = 40 + ROW * (2 + max((row for row, _, _ in labels), default=0))
    height = top + len(panels) * (PANEL + GAP) + BOTTOM - GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(LEFT, 20, title),
    ]
    for event, (row, at, anchor) in zip(events, labels, strict=True):
        middle = _x(event.at_s, end_s)
        parts.append(_line(middle, 40 + row * ROW, middle, height - BOTTOM, event.color, dash="4 3"))
        parts.append(_text(at, 38 + row * ROW, event.what, event.color, anchor))
    for number, panel in enumerate(panels):
        parts += _panel(panel, top + number * (PANEL + GAP), end_s)
    for second in _steps(end_s, 10):
        at = _x(second, end_s)
        parts.append(_text(at, height - BOTTOM + 18, f"{second:g}", anchor="middle"))
    parts.append(_text(_x(end_s, end_s), height - BOTTOM + 36, "seconds", anchor="end"))
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, top: float, end_s: float) -> list[str]:
    most = max((value for line in panel.lines.values() for _, value in line), default=0) or 1
    bottom = top + PANEL
    parts = [_text(LEFT, top - 6, panel.title)]
    for value in _steps(most, 4):
        at = bottom - value / most * PANEL
        parts.append(_line(LEFT, at, WIDTH - 20, at, "#e4e4e4"))
        parts.append(_text(LEFT - 6, at + 4, f"{value:,.0f}", anchor="end"))
    for number, (name, line) in enumerate(panel.lines.items()):
        color = COLORS[number % len(COLORS)]
        points = " ".join(f"{_x(at, end_s):.1f},{bottom - y / most * PANEL:.1f}" for at, y in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        parts.append(_text(WIDTH - 20 - 130 * number, top - 6, f"— {name}", color, anchor="end"))
    return parts


def _placed(events: Sequence[Event], end_s: float) -> list[tuple[int, float, str]]:
    """For the text of each event a row, a place and an anchor: in the picture, and on no other text."""
    taken: list[float] = []  # of each row, up to where
    placed = []
    for event in events:
        at, width = _x(event.at_s, end_s) + 3, LETTER * len(event.what)
        at, anchor = (at, "start") if at + width < WIDTH else (at - 6, "end")
        begin = at if anchor == "start" else at - width
        row = next((row for row, end in enumerate(taken) if end < begin), len(taken))
        taken[row : row + 1] = [begin + width + LETTER]
        placed.append((row, at, anchor))
    return placed


def _x(at_s: float, end_s: float) -> float:
    return LEFT + at_s / end_s * (WIDTH - 20 - LEFT)


def _steps(most: float, about: int) -> list[float]:
    """About so many round numbers from 0 up to the most."""
    raw = most / about
    unit = 10 ** ceil(log10(raw) - 1)
    step = next(unit * each for each in (1, 2, 5, 10) if unit * each >= raw)
    return [step * number for number in range(int(most / step) + 1)]


def _line(x1: float, y1: float, x2: float, y2: float, color: str, dash: str = "") -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"'
        f' stroke-dasharray="{dash}"/>'
    )


def _text(x: float, y: float, text: str, color: str = "#222222", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{anchor}">{escape(text)}</text>'


def blocks(line: Line, end_s: float, width: int) -> str:
    """A line as a row of blocks: in each column the most of its time."""
    most = max((value for _, value in line), default=0) or 1
    columns = [0.0] * width
    for at_s, value in line:
        column = min(width - 1, int(at_s / end_s * width))
        columns[column] = max(columns[column], value)
    return "".join(BLOCKS[ceil(value / most * (len(BLOCKS) - 1))] for value in columns)


def marks(events: Sequence[Event], end_s: float, width: int) -> str:
    """A row with a letter where something happened: the first ones of the alphabet, in turn."""
    row = [" "] * width
    for number, event in enumerate(events):
        column = min(width - 1, int(event.at_s / end_s * width))
        row[column] = chr(ord("a") + number)
    return "".join(row)
