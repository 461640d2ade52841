"""Where `reset-offsets` lets a group go on; pure."""

import pytest

from strandline.base.types import TopicPartition
from strandline.cli.console import WrongUsage
from strandline.cli.groups.reset_plan import Chosen, Facts, Goal, Kind, chosen, from_csv, plan, to_csv

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
FACTS = Facts({P0: 5, P1: 0}, {P0: 20, P1: 3}, {P0: 10}, {P0: 12, P1: None})


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        (Goal(Kind.EARLIEST), (5, 0)),
        (Goal(Kind.LATEST), (20, 3)),
        (Goal(Kind.CURRENT), (10, 3)),
        (Goal(Kind.OFFSET, 7), (7, 3)),
        (Goal(Kind.TIME), (12, 3)),
        (Goal(Kind.FILE, offsets={P0: 6, P1: 9}), (6, 3)),
    ],
)
def test_new_offsets(goal: Goal, expected: tuple[int, int]) -> None:
    assert tuple(row.new for row in plan(goal, FACTS)) == expected


@pytest.mark.parametrize(
    ("by", "new", "note"),
    [
        (3, 13, ""),
        (-5, 5, ""),
        (-6, 5, "adjusted: 4 is outside of 5 to 20"),
        (99, 20, "adjusted: 109 is outside of 5 to 20"),
    ],
)
def test_a_shift_stays_within_the_log(by: int, new: int, note: str) -> None:
    facts = Facts({P0: 5}, {P0: 20}, {P0: 10})
    (row,) = plan(Goal(Kind.SHIFT, by), facts)
    assert (row.committed, row.new, row.note) == (10, new, note)


def test_nothing_is_shifted_from_nowhere() -> None:
    with pytest.raises(WrongUsage, match="committed nothing for t-1"):
        plan(Goal(Kind.SHIFT, 1), FACTS)


def test_a_plan_is_read_back_from_its_file() -> None:
    rows = plan(Goal(Kind.OFFSET, 2), FACTS)
    assert to_csv(rows) == "t,0,5\nt,1,2\n"
    assert from_csv(to_csv(rows).splitlines(), "f") == {P0: 5, P1: 2}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "f is empty"),
        ("t,0", "f line 1 is 't,0': expected topic,partition,offset"),
        ("t,0,1\nt,0,-1", "f line 2"),
        ("t,0,1\n\nt,0,2", "f line 3: t-0 is there twice"),
    ],
)
def test_files_that_are_wrong(text: str, why: str) -> None:
    with pytest.raises(WrongUsage, match=why):
        from_csv(text.splitlines(), "f")


def test_topics_and_their_partitions() -> None:
    assert chosen("t") == Chosen("t")
    assert chosen("t:0,2") == Chosen("t", frozenset({0, 2}))
    for wrong in ("t:", "t:x", ":1", "t:-1"):
        with pytest.raises(WrongUsage, match="expected a topic, or topic:0,1"):
            chosen(wrong)
