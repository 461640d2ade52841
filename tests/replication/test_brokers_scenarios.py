"""Runs tests/scenarios/brokers/*.txt: brokers and ZooKeeper, and the order in which they hear."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.replication.brokers_harness import Story

STORIES = sorted((Path(__file__).parent.parent / "scenarios" / "brokers").glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, replay: Callable[..., None], tmp_path: Path) -> None:
    stage = Story(tmp_path)
    try:
        replay(f"brokers/{story.name}", stage.perform)
    finally:
        stage.close()


def test_there_are_stories() -> None:
    assert len(STORIES) >= 7
