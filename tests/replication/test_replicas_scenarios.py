"""Runs tests/scenarios/replicas/*.txt: leaders and followers of one partition, and their talk."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.replication.replicas_harness import Story

STORIES = sorted((Path(__file__).parent.parent / "scenarios" / "replicas").glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, replay: Callable[..., None]) -> None:
    replay(f"replicas/{story.name}", Story().perform)


def test_there_are_stories() -> None:
    assert len(STORIES) >= 5
