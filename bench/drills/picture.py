"""A drill as a picture: acknowledgements over time, what was done, who led and who was in sync. SVG.

It has a light and a dark form, by what the reader's system prefers. Pure.
"""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from math import ceil
from typing import NamedTuple

WIDTH, PLOT, LEFT, RIGHT = 800, 120, 64, 16
ROW, BAND, LETTER = 15, 16, 5.9  # heights of a label and of a strip; the mean width of a letter
BIN_S = 0.1
CLIP = 2.6  # times the usual: what comes at once after a gap is cut off there, with its number
SHADES = ("a", "b", "c")
STYLE = """<style>
svg{background:#fff;font:11px sans-serif}
text{fill:#24292f}.dim{fill:#57606a}.do{fill:#b3261e}.seen{fill:#0b5cad}
.grid{stroke:#d8dee4}.ldo{stroke:#b3261e}.lseen{stroke:#0b5cad;stroke-dasharray:3 3}
.a{fill:#4c8dca}.b{fill:#e0953c}.c{fill:#5aa469}.i3{fill:#b7dfc2}.i2{fill:#f6dc9c}.i1{fill:#f0b4ab}.i0{fill:#d0d7de}
@media (prefers-color-scheme:dark){
svg{background:#0d1117}text{fill:#e6edf3}.dim{fill:#9da7b1}.do{fill:#ff8b80}.seen{fill:#79b8ff}
.grid{stroke:#30363d}.ldo{stroke:#ff8b80}.lseen{stroke:#79b8ff}
.a{fill:#3f7cb5}.b{fill:#b9772a}.c{fill:#478a57}.i3{fill:#1f4a2c}.i2{fill:#5b4716}.i1{fill:#632820}.i0{fill:#373e47}}
</style>"""


class Mark(NamedTuple):
    """Something at a moment: typed by a person (`is_done`), or seen in the cluster."""

    at_s: float
    what: str
    is_done: bool


class Held(NamedTuple):
    """From this moment on the partition has this leader (-1: none) and this ISR."""

    at_s: float
    leader: int
    isr: tuple[int, ...]


class Story(NamedTuple):
    """What a run came to. Seconds are since the first command; `acknowledged` has moments, by partition."""

    title: str
    begin_s: float
    end_s: float
    acknowledged: dict[str, list[float]]
    marks: list[Mark]
    held: dict[str, list[Held]]
    replicas: int


def svg(story: Story) -> str:
    """The picture."""
    marks = sorted(story.marks)
    rows = _rows(story, marks)
    top = 34 + ROW * (max(rows, default=-1) + 1)
    bottom = top + PLOT
    strips = bottom + 30
    height = strips + (BAND + 3) * len(story.held) + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        STYLE,
        _text(10, 18, story.title, size=13),
        *_columns(story, top),
        *_axis(story, bottom),
    ]
    for mark, row in zip(marks, rows, strict=True):
        at, y = _x(story, mark.at_s), 34 + ROW * row
        kind = "do" if mark.is_done else "seen"
        parts.append(f'<path class="l{kind}" d="M{at:.1f} {y - 4}V{height - 6}"/>')
        left = at + 4 + LETTER * len(mark.what) < WIDTH
        parts.append(_text(at + (4 if left else -4), y + 4, mark.what, kind, "start" if left else "end"))
    for number, (partition, held) in enumerate(story.held.items()):
        parts += _strip(story, partition, held, strips + (BAND + 3) * number, SHADES[number % len(SHADES)])
    return "\n".join([*parts, "</svg>", ""])


def _rows(story: Story, marks: Sequence[Mark]) -> list[int]:
    """For the label of each mark the first row in which it covers no other one."""
    taken: list[float] = []
    found = []
    for mark in marks:
        at, width = _x(story, mark.at_s), LETTER * len(mark.what) + 12
        begin = at if at + width < WIDTH else at - width
        row = next((row for row, end in enumerate(taken) if end < begin), len(taken))
        taken[row : row + 1] = [max(begin + width, at)]
        found.append(row)
    return found


def counts(story: Story) -> dict[str, list[int]]:
    """How many were acknowledged in each tenth of a second, by partition."""
    bins = round((story.end_s - story.begin_s) / BIN_S)
    found = {partition: [0] * bins for partition in story.acknowledged}
    for partition, moments in story.acknowledged.items():
        for moment in moments:
            place = int((moment - story.begin_s) / BIN_S)
            if 0 <= place < bins:
                found[partition][place] += 1
    return found


def _columns(story: Story, top: float) -> list[str]:
    """The counts one above the other, as one shape for each partition."""
    found = counts(story)
    sums = [sum(column) for column in zip(*found.values(), strict=True)]
    usual = (
        sorted(each for each in sums if each)[len([each for each in sums if each]) // 2] if any(sums) else 1
    )
    most, bottom = usual * CLIP, top + PLOT
    width = BIN_S / (story.end_s - story.begin_s) * (WIDTH - LEFT - RIGHT)
    parts = [
        _text(LEFT - 6, top + 8, "acks per", "dim", "end"),
        _text(LEFT - 6, top + 20, "100 ms", "dim", "end"),
    ]
    at = bottom - usual / most * PLOT
    parts += [
        f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>',
        _text(LEFT - 6, at + 4, str(usual), "dim", "end"),
    ]
    layers, total = [], [0] * len(sums)
    for number, column in enumerate(found.values()):
        total = [below + count for below, count in zip(total, column, strict=True)]
        steps = "".join(f"V{bottom - min(each, most) / most * PLOT:.0f}h{width:.2f}" for each in total)
        shade = SHADES[number % len(SHADES)]
        layers.append(f'<path class="{shade}" d="M{LEFT} {bottom}{steps}V{bottom}z"/>')
    parts += layers[::-1]  # each covers the lower part of the one before
    last = -1e9
    for place, count in enumerate(sums):
        x = LEFT + place * width
        if count > most and x > last:
            parts.append(_text(x + width + 2, top + 9, f"{count:,}"))
            last = x + 40
    return parts


def _axis(story: Story, bottom: float) -> list[str]:
    span = story.end_s - story.begin_s
    step = next(each for each in (1, 2, 5, 10, 20) if span / each <= 14)
    second = ceil(story.begin_s / step) * step
    parts = [f'<path class="grid" d="M{LEFT} {bottom}H{WIDTH - RIGHT}"/>']
    while second <= story.end_s:
        parts.append(_text(_x(story, second), bottom + 14, f"{second:g} s", "dim", "middle"))
        second += step
    return parts


def _strip(story: Story, partition: str, held: Sequence[Held], top: float, shade: str) -> list[str]:
    """Who led the partition, and who was in its ISR."""
    parts = [
        f'<rect class="{shade}" x="4" y="{top + 4}" width="8" height="8"/>',
        _text(16, top + 12, partition, "dim"),
    ]
    ends = [*(each.at_s for each in held[1:]), story.end_s]
    for each, end_s in zip(held, ends, strict=True):
        begin, end = _x(story, max(each.at_s, story.begin_s)), _x(story, min(end_s, story.end_s))
        if end - begin < 0.5:
            continue
        size = 0 if each.leader < 0 else 3 if len(each.isr) == story.replicas else min(len(each.isr), 2)
        width = end - begin - 0.5
        parts.append(f'<rect class="i{size}" x="{begin:.1f}" y="{top}" width="{width:.1f}" height="{BAND}"/>')
        ids = ",".join(map(str, each.isr))
        long, short = (
            f"leader {each.leader}, ISR {ids}" if size else f"no leader, ISR {ids}",
            f"{each.leader}: {ids}",
        )
        told = next((text for text in (long, short) if LETTER * len(text) + 6 < end - begin), "")
        if told:
            parts.append(_text(begin + 4, top + 12, told))
    return parts


def merged(marks: Iterable[Mark], within_s: float = 0.3) -> list[Mark]:
    """The same word twice within a moment is one mark."""
    found: list[Mark] = []
    for mark in sorted(marks):
        if not any(one.what == mark.what and mark.at_s - one.at_s < within_s for one in found):
            found.append(mark)
    return found


def longest_gap_s(story: Story, partition: str) -> float:
    """The longest time in the picture without an acknowledgement of the partition."""
    inside = [each for each in sorted(story.acknowledged[partition]) if story.begin_s <= each <= story.end_s]
    moments = [story.begin_s, *inside, story.end_s]
    return max(after - before for before, after in pairwise(moments))


def _x(story: Story, at_s: float) -> float:
    share = (at_s - story.begin_s) / (story.end_s - story.begin_s)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start", size: int = 0) -> str:
    more = f' class="{kind}"' if kind else ""
    more += f' text-anchor="{anchor}"' if anchor != "start" else ""
    more += f' font-size="{size}"' if size else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(text)}</text>'
