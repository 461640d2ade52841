"""What drivers ask of a cluster whose brokers hear of a topic one after the other."""

from types import SimpleNamespace
from typing import Any

import pytest

from bench import drivers

LED = {0: SimpleNamespace(id=0, leader=2, isrs=[1, 2]), 1: SimpleNamespace(id=1, leader=1, isrs=[1, 2])}
UNLED = {**LED, 1: SimpleNamespace(id=1, leader=-1, isrs=[])}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[dict[int, Any]]:
    """What brokers will say of the topic's partitions, the next one first."""
    told: list[dict[int, Any]] = []

    class Admin:
        def __init__(self, config: dict[str, str]) -> None:
            assert config == {"bootstrap.servers": "somewhere"}

        def create_topics(self, topics: list[Any]) -> dict[str, Any]:
            return {topic.topic: SimpleNamespace(result=lambda wait_s: None) for topic in topics}

        def list_topics(self, topic: str, timeout: float) -> Any:
            return SimpleNamespace(topics={topic: SimpleNamespace(partitions=told.pop(0))})

    monkeypatch.setattr(drivers, "AdminClient", Admin)
    return told


def test_a_leader_is_asked_for_again_where_the_topic_is_not_yet_known(answers: list[dict[int, Any]]) -> None:
    answers += [{}, {1: LED[1]}, UNLED, LED]
    assert drivers.leader_of("somewhere", "topic", 0) == 2
    assert answers == []


def test_a_topic_is_there_when_every_partition_is_led_and_in_sync(answers: list[dict[int, Any]]) -> None:
    answers += [{}, {0: LED[0]}, UNLED, LED]
    drivers.create_topic("somewhere", "topic", 2, 2)
    assert answers == []
