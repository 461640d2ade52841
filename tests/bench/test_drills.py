"""The pictures of docs/drills.md: what is drawn, by whose commands, and that the page shows them."""

import xml.etree.ElementTree as ElementTree

from bench.drills.page import PICTURES, sections
from bench.drills.picture import CLIP, Held, Mark, Story, counts, longest_gap_s, merged, svg
from bench.drills.run import DRILLS

BYTES_MAX = 30 << 10
STORY = Story(
    "1. A leader <is> killed",
    -1.0,
    4.0,
    {"orders-0": [n / 20 for n in range(-20, 80)], "orders-1": [n / 20 for n in range(-20, 5)] + [1.0] * 30},
    [
        Mark(0.0, "strandline kill 2", is_done=True),
        Mark(0.1, "broker 2 counts as dead", is_done=False),
        Mark(3.9, "a mark with a long text near the right edge of the picture", is_done=False),
    ],
    {"orders-0": [Held(-5.0, 1, (1, 2, 3))], "orders-1": [Held(-5.0, 2, (2, 1, 3)), Held(0.1, 1, (1, 3))]},
    3,
)


def test_the_picture_is_whole() -> None:
    drawn = svg(STORY)
    root = ElementTree.fromstring(drawn)
    texts = [each.text or "" for each in root.iter() if each.tag.endswith("text")]
    assert "1. A leader <is> killed" in texts and "strandline kill 2" in texts
    assert "leader 2, ISR 2,1,3" in texts or "2: 2,1,3" in texts
    assert "leader 1, ISR 1,3" in texts
    assert "prefers-color-scheme:dark" in drawn, "it is read in the dark, too"


def test_what_comes_at_once_is_cut_off_with_its_number() -> None:
    column = counts(STORY)
    assert column["orders-1"][20] == 30, (
        "the tenth of a second that begins one second after the first command"
    )
    total = column["orders-0"][20] + 30
    assert total > CLIP * 4 and f">{total}</text>" in svg(STORY)


def test_the_longest_gap_is_between_two_acknowledgements_or_at_an_end() -> None:
    assert round(longest_gap_s(STORY, "orders-1"), 2) == 3.0, "from the last one to the end"
    assert round(longest_gap_s(STORY, "orders-0"), 2) == 0.05


def test_the_same_word_twice_in_a_moment_is_one_mark() -> None:
    marks = [Mark(1.2, "elected", is_done=False), Mark(1.0, "elected", is_done=False)]
    assert merged([*marks, Mark(2.0, "elected", is_done=False)]) == [
        Mark(1.0, "elected", is_done=False),
        Mark(2.0, "elected", is_done=False),
    ]


def test_each_drill_of_the_page_is_done_by_its_commands_and_has_its_picture() -> None:
    page = {section.number: section for section in sections()}
    assert page.keys() == {drill.number for drill in DRILLS}
    for drill in DRILLS:
        section, picture = page[drill.number], PICTURES / f"{drill.name}.svg"
        assert len(section.commands) == len(drill.hold_s), f"{section.title}: {section.commands}"
        assert f"(drills/{drill.name}.svg)" in section.text, f"{section.title} does not show {picture.name}"
        assert picture.stat().st_size <= BYTES_MAX
        ElementTree.fromstring(picture.read_text())
