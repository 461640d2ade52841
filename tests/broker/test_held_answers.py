"""When a broker answers about leaders and coordinators, told as conversations in scenarios/metadata/*.txt.

`>` is an event, the `<` lines below it are what clients hear, `#` explains. It is broker 2 that they ask.
`REWRITE=1 pytest tests/broker` writes today's answers into the files; the diff is then to be judged.

  the controller says: orders-0 led by 1 in epoch 0, orders-1 led by none in epoch 3 [, brokers 1 2]
  ann asks about orders | about everything | about the cluster | for the coordinator of g
  the connection to 1 breaks | is made | is back     2 follows 1 no more     100 ms pass
  2 is told to lead orders-0 in epoch 1    bob creates new    new is refused     2000 clients ask about orders
"""

import asyncio
import heapq
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from strandline.base.event import Event
from strandline.base.types import BrokerId, TopicPartition
from strandline.broker.handlers import metadata
from strandline.broker.handlers.groups import coordinators
from strandline.broker.metadata.cache import Picture
from strandline.broker.metadata.held_answers import HeldAnswers
from strandline.broker.network.exchange import NEVER, Exchange, Listener
from strandline.broker.replicas.purgatory import Deadlines
from strandline.broker.replicas.shared import ReplicaShared
from strandline.protocol.apis import Api
from strandline.protocol.messages.control import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from strandline.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

STORIES = sorted((Path(__file__).parent.parent / "scenarios" / "metadata").glob("*.txt"))
CLIENTS = Listener("CLIENT", False)
METADATA, FIND_COORDINATOR = 9, 3
ROLE = re.compile(r"([\w-]+)-(\d+) (?:led by (\w+) in epoch (\d+)|(is deleted))")


class StandingLoop:
    """A clock that a story moves, and the timers on it."""

    def __init__(self) -> None:
        self.now = 100.0
        self._timers: list[tuple[float, int, Any]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None]) -> Any:
        timer = SimpleNamespace(call=call, cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        heapq.heappush(self._timers, (when, len(self._timers), timer))
        return timer

    def pass_s(self, seconds: float) -> None:
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            self.now, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                timer.call()
        self.now = until


class Client:
    """Who has asked; what it hears is a line of the story."""

    def __init__(self, story: "Story", name: str) -> None:
        self.story, self.name, self.asked_at = story, name, NEVER

    def answer(self, response: Any) -> None:
        self.story.hears(self.name, response)


class Story:
    """Broker 2: its picture, the answers that it holds back, and the handlers that ask for them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.clients: dict[str, Client] = {}
        self.loop = StandingLoop()
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        events: dict[str, Event[...]] = {name: Event() for name in ("told", "lost", "back", "left")}
        host = cast(ReplicaShared, SimpleNamespace(loop=loop, deadlines=Deadlines(loop), **events))
        self.held = HeldAnswers(host, lambda: self.broker.metadata)
        self.broker: Any = SimpleNamespace(
            id=2,
            cluster_id="c",
            metadata=Picture(),
            held=self.held,
            config=SimpleNamespace(auto_create_topics_enable=True),
            groups=SimpleNamespace(partition_count=lambda: 2, ensure_topic=lambda: None),
            forwarder=SimpleNamespace(create_soon=self.held.creating),
        )

    def perform(self, event: str) -> list[str]:
        self.lines = []
        for pattern, method in self.VERBS.items():
            found = re.fullmatch(pattern, event)
            if found:
                method(self, *found.groups())
                return self.lines or ["nothing"]
        raise AssertionError(f"no such event: {event}")

    def says(self, roles: str) -> None:
        roles, _, brokers = roles.partition(", brokers ")
        states: dict[str, list[UpdateMetadataPartitionState]] = {}
        for topic, index, leader, epoch, deleted in ROLE.findall(roles):
            number = -2 if deleted else -1 if leader == "none" else int(leader)
            states.setdefault(topic, []).append(
                UpdateMetadataPartitionState(
                    partition_index=int(index), controller_epoch=1, leader=number,
                    leader_epoch=int(epoch or -2), isr=[1], zk_version=0, replicas=[1, 2, 3],
                )
            )  # fmt: skip
        before = self.broker.metadata
        update = UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            topic_states=[
                UpdateMetadataTopicState(topic_name=name, topic_id=UUID(int=0), partition_states=each)
                for name, each in states.items()
            ],
            live_brokers=[_broker(int(number)) for number in (brokers or "1 2 3").split()],
        )
        self.broker.metadata = before.updated(update)
        self.held.pictured(before, update)

    def asks(self, name: str, what: str) -> None:
        topics = [MetadataRequestTopic(name=topic) for topic in re.findall(r"about ([\w-]+)", what)]
        request = MetadataRequest(topics=topics)
        if what == "about everything":
            request = MetadataRequest(topics=None)
        elif what == "about the cluster":
            request = MetadataRequest(topics=[])
        self.ask(name, Api.METADATA, METADATA, metadata.handle, request)

    def seeks(self, name: str, group: str) -> None:
        self.ask(
            name, Api.FIND_COORDINATOR, FIND_COORDINATOR, coordinators.find, FindCoordinatorRequest(key=group)
        )

    def ask(self, name: str, api: Api, version: int, handle: Callable[..., Any], request: Any) -> None:
        client = self.clients.setdefault(name, Client(self, name))
        exchange = cast(
            Exchange,
            SimpleNamespace(listener=CLIENTS, version=version, channel=client, answer=client.answer),
        )
        response = handle(self.broker, exchange, request)
        if response is not None:
            client.answer(response)
        else:
            self.lines.append(f"{name} waits")

    def many_ask(self, count: str, what: str) -> None:
        for number in range(int(count)):
            self.asks(str(number), what)
        waiting = sum(line.endswith("waits") for line in self.lines)
        self.lines = [f"{waiting} wait, {int(count) - waiting} are answered"]

    def hears(self, name: str, response: Any) -> None:
        at_ms = round((self.loop.now - 100) * 1000)
        self.lines.append(f"{at_ms} ms: {name} hears: {_said(response)}")

    def breaks(self, broker: str) -> None:
        self.held.lost(BrokerId(int(broker)))

    def is_back(self, broker: str) -> None:
        self.held.back(BrokerId(int(broker)))

    def is_left(self, broker: str) -> None:
        self.held.doubts.left(BrokerId(int(broker)))

    def is_told(self, topic: str, partition: str, epoch: str) -> None:
        self.held.told(TopicPartition(topic, int(partition)), int(epoch))

    def creates(self, topic: str) -> None:
        self.held.creating(topic)

    def refused(self, topic: str) -> None:
        self.held.created(topic)

    def passes(self, ms: str) -> None:
        self.loop.pass_s(int(ms) / 1000)

    VERBS: dict[str, Any] = {
        r"the controller says: (.*)": says,
        r"(\w+) asks (about .*)": asks,
        r"(\w+) asks for the coordinator of (\w+)": seeks,
        r"(\d+) clients ask (about .*)": many_ask,
        r"the connection to (\d) breaks": breaks,
        r"the connection to (\d) is (?:back|made)": is_back,
        r"2 follows (\d) no more": is_left,
        r"2 is told to (?:lead|follow) ([\w-]+)-(\d+) in epoch (\d+)": is_told,
        r"\w+ creates ([\w-]+)": creates,
        r"([\w-]+) is refused": refused,
        r"(\d+) ms pass": passes,
    }


def _broker(number: int) -> UpdateMetadataBroker:
    endpoint = UpdateMetadataEndpoint(port=9000 + number, host="h", listener="CLIENT")
    return UpdateMetadataBroker(id=number, endpoints=[endpoint])


def _said(response: MetadataResponse | FindCoordinatorResponse) -> str:
    if isinstance(response, FindCoordinatorResponse):
        return f"broker {response.node_id}" if response.error_code == 0 else f"error {response.error_code}"
    brokers = " ".join(str(broker.node_id) for broker in response.brokers) or "none"
    told = [
        f"{topic.name}-{one.partition_index} led by {one.leader_id if one.leader_id >= 0 else 'none'}"
        for topic in response.topics
        for one in topic.partitions
    ]
    told += [f"{topic.name} error {topic.error_code}" for topic in response.topics if topic.error_code]
    return ", ".join(told) or f"brokers {brokers}, controller {response.controller_id}"


@pytest.mark.parametrize("story", STORIES, ids=[path.stem for path in STORIES])
def test_story(story: Path) -> None:
    told, written, stage = [], story.read_text().splitlines(), Story()
    for line in written:
        if line.startswith("<"):
            continue
        told.append(line)
        if line.startswith("> "):
            told.extend(f"< {answer}" for answer in stage.perform(line[2:]))
    if os.environ.get("REWRITE"):
        story.write_text("\n".join(told) + "\n")
        return
    assert told == written


def test_there_are_stories() -> None:
    assert STORIES
