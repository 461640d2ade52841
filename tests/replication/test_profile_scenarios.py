"""Runs tests/scenarios/profiles/*.txt: the same events under two profiles, with opposite outcomes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.replication.replicas_harness import Story

STORIES = sorted((Path(__file__).parent.parent / "scenarios" / "profiles").glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, replay: Callable[..., None]) -> None:
    replay(f"profiles/{story.name}", Story().perform)


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_both_halves_tell_the_same_events_and_end_differently(story: Path) -> None:
    halves = [half.splitlines() for half in story.read_text().split("> under the profile ")[1:]]
    assert len(halves) == 2 and halves[0][0] != halves[1][0]
    events = [[line for line in half if line.startswith("> ")] for half in halves]
    assert events[0] == events[1]
    assert events[0][-1] == "> is all well?"
    assert halves[0][-1] != halves[1][-1]


def test_there_are_stories() -> None:
    assert len(STORIES) >= 4
